"""Names of people, machines and places in records are replaced by made-up ones, the same by the same.

Names that this process or the records know (hosts, the user, the home folder) are found wherever they stand as a word.
Paths, addresses, URLs and serial numbers are found by their form. Names given by a person to a model, a sweep or a file
of a relative path are not known to be names.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

# The values of these keys are results and versions: an address's form there is a version's.
_KEPT = frozenset(
    {"distributions", "metrics", "packages", "versions", "schema", "id", "stack", "status", "source", "sources"}
)
# The values of these keys are names whatever their form.
_NAMED = {
    "host": "host",
    "hostname": "host",
    "host_name": "host",
    "node_name": "host",
    "user": "user",
    "user_name": "user",
    "remote": "remote",
    "uuid": "uuid",
    "serial": "serial",
    "boot_id": "uuid",
}
_VARIABLE = re.compile(
    r"(?i)^(USER|LOGNAME|USERNAME|SUDO_\w+|HOST|HOSTNAME|HOME|MAIL|EMAIL|PWD|OLDPWD|MASTER_ADDR|GIT_(AUTHOR|COMMITTER)\w*"
    r"|SSH_\w+|DISPLAY|SLURM\w*(NODE|HOST|USER|ACCOUNT|ADDR|DIR)\w*)$"
)
_ASSIGNED = re.compile(r"\b(?P<name>[A-Z][A-Z_]{2,30})=(?P<value>[^\s\"',;]+)")
# What lies there is the same on every machine; and the routes of servers.
_SYSTEM = tuple(
    f"/{name}"
    for name in (
        "usr/bin/",
        "usr/lib/",
        "usr/include/",
        "usr/local/cuda",
        "proc/",
        "sys/",
        "dev/null",
        "dev/nvidia",
        "lib/",
        "lib64/",
        "bin/",
        "v1/",
    )
)
_WORD = r"[\w.@+~%-]"
# Hydra puts a backslash before a colon within a value. What begins with a run of letters begins at its first one, and
# addresses have no more letters than an address can have: else a long word would be read again from each of them.
_SCHEME = r"(?<![\w+])[a-zA-Z][a-zA-Z0-9+]*\\?:"
_FORMS = re.compile(
    rf"(?P<local>{_SCHEME}///[^\s\"'<>,;)\]]+)"
    rf"|(?P<url>{_SCHEME}//[^\s\"'<>,;)\]]+)"
    rf"|(?P<remote>(?<![\w.@+-])[\w.-]+@[\w.-]+\\?:[\w./~-]+|(?<![\w.@/+-])[\w.-]+\\?:[\w./~-]+\.git\b)"
    rf"|(?P<mail>(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    rf"|(?P<uuid>\b(?:GPU-|MIG-)?[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}\b)"
    rf"|(?P<mac>\b(?:[0-9a-fA-F]{{2}}:){{5}}[0-9a-fA-F]{{2}}\b|\b(?:[0-9a-fA-F]{{2}}-){{5}}[0-9a-fA-F]{{2}}\b)"
    rf"|(?P<address>(?<![\w.:])(?:\d{{1,3}}(?:\.\d{{1,3}}){{3}}"
    rf"|[0-9a-fA-F]{{0,4}}:[0-9a-fA-F:]{{0,45}}:[0-9a-fA-F:.]{{0,45}})(?![\w.]))"
    rf"|(?P<path>(?:(?<![\w./~-])|(?<=-[IL]))(?:~[\w-]*)?/+(?:{_WORD}+/+)+{_WORD}*|(?<![\w./~<-])/+[A-Za-z][\w-]+)"
)
# What of a path says which library it is of, and nothing of where it lies.
_TAIL = re.compile(r"(?:/site-packages|/lib/python3\.\d+)/.*$|/bin/python[\d.]*$|(?<=/)llmexp/.*\.py$")


class Anonymizer:
    """Replaces names in texts and records of one bundle; `known` has names by their kind, such as host and user."""

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        self._made: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for kind, name in known:
            self.learn(kind, name)

    def learn(self, kind: str, name: str) -> None:
        """Know a name, so that it is replaced in every text; of a host also the part before its domain."""
        if name in ("", "/", "localhost", "127.0.0.1"):
            return
        plain = name.lower()
        self._names[plain] = self._made_up(kind, name)
        if kind == "host" and "." in name and not name.replace(".", "").isdigit():
            self._names.setdefault(plain.partition(".")[0], self._names[plain])
        longest_first = sorted(self._names, key=len, reverse=True)
        words = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE)

    def learn_from(self, values: Any) -> None:
        """Know the names that a record states by its keys."""
        if isinstance(values, dict):
            for key, value in values.items():
                kind = _NAMED.get(key)
                if kind in ("host", "user") and isinstance(value, str):
                    self.learn(kind, value)
                self.learn_from(value)
        elif isinstance(values, list):
            for value in values:
                self.learn_from(value)

    def record(self, values: Any, key: str = "") -> Any:
        """Replace names in all texts of a record; results, versions and numbers stay."""
        if key in _KEPT:
            return values
        if isinstance(values, dict):
            return {self.text(name): self.record(value, name) for name, value in values.items()}
        if isinstance(values, list):
            return [self.record(value, key) for value in values]
        if not isinstance(values, str) or not values:
            return values
        kind = _NAMED.get(key)
        if kind or _VARIABLE.match(key):
            return self._made_up(kind or "value", values)
        if values.startswith(("/", "~")) and not _is_of_system(values) and "\n" not in values:
            return self._path(values)
        return self.text(values)

    def text(self, text: str) -> str:
        """Replace names in a text, such as a log."""
        text = _FORMS.sub(self._by_form, _ASSIGNED.sub(self._by_variable, text))
        return self._pattern.sub(lambda found: self._names[found[0].lower()], text) if self._pattern else text

    def _by_variable(self, found: re.Match[str]) -> str:
        named = _VARIABLE.match(found["name"])
        return f"{found['name']}={self._made_up('value', found['value'])}" if named else found[0]

    def _by_form(self, found: re.Match[str]) -> str:
        kind, value = str(found.lastgroup), found[0]
        if kind == "path":
            return value if _is_of_system(value) else self._path(value)
        if kind == "local":
            scheme, _, place = value.partition("://")
            return f"{scheme}://{self._path(place)}"
        if kind == "url":
            plain = value.replace("\\", "")
            return value if _is_of_this_machine(plain) else self._made_up("url", plain)
        if kind == "address":
            return self._address(value)
        return self._made_up(kind, value)

    def _address(self, value: str) -> str:
        try:
            address = ipaddress.ip_address(value)
        except ValueError:
            return value
        return value if address.is_loopback or address.is_unspecified else self._made_up("address", value)

    def _path(self, path: str) -> str:
        if path in self._made.values() or re.match(r"/path-\d+", path):
            return path
        tail = _TAIL.search(path)
        kept = tail[0] if tail else ""
        folder = self._made_up("path", path.removesuffix(kept).rstrip("/"))
        suffix = "" if kept else re.search(r"(\.\w{1,6})?/?$", path)[0].rstrip("/")  # type: ignore[index]
        return f"/{folder}{'/' if kept and not kept.startswith('/') else ''}{kept}{suffix}"

    def _made_up(self, kind: str, name: str) -> str:
        if name.lower() in self._names:
            return self._names[name.lower()]
        if re.fullmatch(rf"{kind}-\d+", name):
            return name
        if (kind, name) not in self._made:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._made[kind, name] = f"{kind}-{self._counts[kind]}"
        return self._made[kind, name]


def _is_of_system(path: str) -> bool:
    """Tell whether a path is the same on every machine, wherever its .. lead."""
    return f"/{posixpath.normpath(path).lstrip('/')}{'/' * path.endswith('/')}".startswith(_SYSTEM)


def _is_of_this_machine(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.hostname in ("localhost", "127.0.0.1") and parts.username is None
