"""Secrets out of everything that is recorded: what a URL carries before its host, and the values of variables named like secrets."""

from __future__ import annotations

import os
import re
from functools import cache

HIDDEN = "***"
# Up to the last @ before a slash: a password may itself hold an @.
_USER_INFO = re.compile(r"""(?<=://)[^\s/"'<>]+@""")
_QUERY_SECRET = re.compile(r"""(?i)(?<=[?&])((?:[\w-]*[_-])?(?:token|secret|password|key|sig|signature)=)[^\s&"'<>]+""")
_SECRET_NAME = re.compile(r"(?i)(?:^|_)(?:TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|KEY)(?:_|$)")
# Shorter values, such as the 'false' of TOKENIZERS_PARALLELISM, are ordinary words whose hiding would tear texts apart.
_SHORTEST_SECRET = 8


@cache
def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret by convention, as HF_TOKEN or AWS_SECRET_ACCESS_KEY do."""
    return bool(_SECRET_NAME.search(name))


def redact(text: str) -> str:
    """Hide credentials of URLs and this process's secret variables wherever they stand in `text`."""
    for value in _secret_values():
        text = text.replace(value, HIDDEN)
    text = _USER_INFO.sub(f"{HIDDEN}@", text)
    return _QUERY_SECRET.sub(rf"\g<1>{HIDDEN}", text)


def _secret_values() -> list[str]:
    values = {value for name, value in os.environ.items() if is_secret_name(name) and len(value) >= _SHORTEST_SECRET}
    return sorted(values, key=len, reverse=True)
