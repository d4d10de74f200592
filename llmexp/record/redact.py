"""Secrets out of everything that is recorded: what a URL carries before its host, the values of variables named like secrets, and known tokens."""

from __future__ import annotations

import os
import re
from functools import cache

HIDDEN = "***"
# Up to the last @ before a slash: a password may itself hold an @.
_USER_INFO = re.compile(r"""(?<=://)[^\s/"'<>]+@""")
_QUERY_SECRET = re.compile(r"""(?i)(?<=[?&])((?:[\w-]*[_-])?(?:token|secret|password|key|sig|signature)=)[^\s&"'<>]+""")
_SECRET_NAME = re.compile(r"(?i)(?:^|_)(?:TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|KEY)(?:_|$)")
# As their makers say that they look: GitHub, GitLab, Hugging Face, OpenAI and Anthropic, AWS, Slack, Google;
# and private keys in PEM.
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_\w{36,}|github_pat_\w{60,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}|sk-[\w-]{32,}|A(?:KIA|SIA)[A-Z0-9]{16}|xox[abprs]-[\w-]{20,}"
    r"|AIza[\w-]{35})(?![\w-])|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?:.|\n)*?(?:-----END (?:[A-Z]+ )*PRIVATE KEY-----|\Z)"
)
# A user's name alone is none, but where there is nothing else to be said by it.
_LOGIN = re.compile(r"""https?://[^\s/"'<>@]+@|://[^\s/"'<>:@]*:[^\s/"'<>]+@""")
# Shorter values, such as the 'false' of TOKENIZERS_PARALLELISM, are ordinary words whose hiding would tear texts apart.
_SHORTEST_SECRET = 8


@cache
def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret by convention, as HF_TOKEN or AWS_SECRET_ACCESS_KEY do."""
    return bool(_SECRET_NAME.search(name))


def redact(text: str) -> str:
    """Hide credentials of URLs, known tokens and this process's secret variables wherever they stand in `text`."""
    for value in _secret_values():
        text = text.replace(value, HIDDEN)
    text = _TOKEN.sub(HIDDEN, _USER_INFO.sub(f"{HIDDEN}@", text))
    return _QUERY_SECRET.sub(rf"\g<1>{HIDDEN}", text)


def secret_in(text: str) -> str:
    """What kind of secret a text holds, whatever its name; empty where none is seen."""
    if _LOGIN.search(text) or _QUERY_SECRET.search(text):
        return "a URL with a login"
    return "a token or a private key" if _TOKEN.search(text) else ""


def _secret_values() -> list[str]:
    values = {value for name, value in os.environ.items() if is_secret_name(name) and len(value) >= _SHORTEST_SECRET}
    return sorted(values, key=len, reverse=True)
