"""Removal of secrets from everything that is recorded.

Secrets are recognized in URLs, by the values of this process's secret variables, by their form, or by the name that
they are assigned to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from llmexp.record.token_forms import FORMS

HIDDEN = "***"
# It ends at the last @ before a slash, because a password may itself have an @.
_USER_INFO = re.compile(r"""(?<=://)[^\s/"'<>]+@""")
_QUERY_SECRET = re.compile(
    r"""(?i)(?<=[?&])((?:[\w-]*[_-])?(?:token|secret|password|key|sig|signature)=)[^\s&"'<>{]+"""
)
_SECRET_NAME = re.compile(
    r"(?i)(?:^|_)(?:TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|KEY)(?:_|$)"
)
# A private key in PEM up to its end, also within lines of a log, a diff or JSON; if it was cut off, all lines that are
# left of it.
_PEM = r"(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
_WHOLE = rf"""(?:(?!-----)[\w\s+/=\\:,.'"\[\]-]){{16,20000}}-----END {_PEM}"""
_CUT_OFF = r"(?:\s|\\[nr])*(?:[\w-]+: [^\n]{0,200}\n\s*){0,5}+(?:[+-]?[\w+/=]{16,}(?:\s|\\[nr])*)+[A-Za-z0-9+/]*=*"
_PRIVATE_KEY = re.compile(rf"-----BEGIN {_PEM}(?:{_WHOLE}|{_CUT_OFF})")
# A value that looks random and differs from a digest only by its name: WANDB_API_KEY=…, "aws_secret_access_key": "…",
# AccountKey=…
_WORDS = r"/?(?:(?:[a-z]+|[A-Z]+)\d*[/_-])+(?:[a-z]*|[A-Z]*)\d*(?![\w+/~-])"
_RANDOM = rf"(?=[A-Za-z+/_~-]*\d)(?=[\d+/_~-]*[A-Za-z])(?!{_WORDS})[\w+/~-]{{16,}}+={{0,2}}+(?![\w.(\[{{/:])"
_ASSIGNED = re.compile(rf"""(?<=[:=])>?[ \t]*["']?(?P<value>{_RANDOM})""")
_NAMED = re.compile(
    r"""(?i)(?:(?:api|access|secret|account|shared|auth|storage|private|master)[_-]?(?:access[_-]?)?(?:key|token)"""
    r"""|secret|password|passwd|passphrase"""
    r"""|(?<![a-z0-9_-])token|(?-i:[A-Z0-9]_(?:KEY|TOKEN)))["']?\s*[:=]$"""
)
_LONGEST_NAME = 60
_AUTHORIZATION = re.compile(
    r"""(?i)(\bauthorization["']?\s*[:=]\s*["']?(?:basic|bearer|token)\s+|\bbearer\s+(?=[a-z_.~+/-]*\d))[\w.~+/-]{16,}=*"""
)
# A user name without a password is a login only in an HTTP URL, where it can be nothing else.
_LOGIN = re.compile(r"""https?://[^\s/"'<>@]+@|://[^\s/"'<>:@]*:[^\s/"'<>]+@""")
# Shorter values, such as the 'false' of TOKENIZERS_PARALLELISM, are ordinary words; hiding them would damage texts.
_SHORTEST_SECRET = 8


@cache
def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name holds a secret by convention, as HF_TOKEN or AWS_SECRET_ACCESS_KEY do."""
    return bool(_SECRET_NAME.search(name))


def redact(text: str) -> str:
    """Hide credentials of URLs, tokens, private keys and this process's secret variables everywhere in `text`."""
    for value in _secret_values():
        text = text.replace(value, HIDDEN)
    text = _PRIVATE_KEY.sub(HIDDEN, _USER_INFO.sub(f"{HIDDEN}@", text))
    for form in FORMS:
        text = form.hide(text, HIDDEN)
    text = _ASSIGNED.sub(_without_value, _AUTHORIZATION.sub(rf"\g<1>{HIDDEN}", text))
    return _QUERY_SECRET.sub(rf"\g<1>{HIDDEN}", text)


def redact_values(values: Mapping[str, str]) -> Mapping[str, str]:
    """Hide secrets in values; all values are searched at once first, because a search of each alone takes longer."""
    together = "\n".join(values.values())
    return values if redact(together) == together else {name: redact(value) for name, value in values.items()}


def redact_all(values: Any) -> Any:
    """Hide secrets in all texts of nested lists and mappings, one text at a time, so that their JSON stays valid."""
    if isinstance(values, str):
        return redact(values)
    if isinstance(values, dict):
        return {name: redact_all(value) for name, value in values.items()}
    return [redact_all(value) for value in values] if isinstance(values, list | tuple) else values


@lru_cache(4096)
def secret_in(text: str) -> str:
    """Name the kind of secret that a text holds; empty where none is found."""
    if _LOGIN.search(text) or _QUERY_SECRET.search(text):
        return "a URL with a login"
    if _PRIVATE_KEY.search(text):
        return "a private key"
    issuer = next((form.issuer for form in FORMS if form.is_in(text)), "")
    if issuer:
        return f"a token ({issuer})"
    assigned = any(_is_secret(found) for found in _ASSIGNED.finditer(text))
    return "a token or a password" if assigned or _AUTHORIZATION.search(text) else ""


def _without_value(assigned: re.Match[str]) -> str:
    return assigned[0].replace(assigned["value"], HIDDEN) if _is_secret(assigned) else assigned[0]


def _is_secret(assigned: re.Match[str]) -> bool:
    return bool(_NAMED.search(assigned.string[max(0, assigned.start() - _LONGEST_NAME) : assigned.start()]))


def _secret_values() -> list[str]:
    values = {value for name, value in os.environ.items() if is_secret_name(name) and len(value) >= _SHORTEST_SECRET}
    return sorted(values, key=len, reverse=True)
