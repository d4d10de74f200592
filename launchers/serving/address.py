"""Where a server listens, and the bytes of a request to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from llmexp.errors import ConfigError

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """A server's host and port, whether it speaks TLS, and the path below which it answers."""

    host: str
    port: int
    is_tls: bool = False
    below: str = ""

    @classmethod
    def of(cls, text: str) -> Address:
        """Read an address such as http://127.0.0.1:8000; raises ConfigError where it is none.

        A path is kept, but for the /v1 with which addresses of this API are often given.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"address {text}: {error}") from None
        if parts.scheme not in PORTS or not parts.hostname:
            raise ConfigError(f"address {text}: expected http:// or https://, a host and a port")
        if parts.username is not None:
            raise ConfigError("address: a key is no part of it, because addresses are recorded")
        below = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or PORTS[parts.scheme], parts.scheme == "https", below)

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def message(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Return the bytes of a POST of JSON; raises ConfigError where a header would end its line."""
        told = {
            "Host": self.authority,
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **headers,
        }
        lines = [f"POST {self.below}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise ConfigError("a header of a request has a line break in it")
        return "\r\n".join([*lines, "", ""]).encode() + body
