"""The address of a server that runs already, and the key that it may want."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from llmexp.errors import ConfigError

PORTS = {"http": 80, "https": 443}
# A key of somebody's OpenAI account stands in OPENAI_API_KEY on many machines: it is sent to no server unasked.
API_KEY = "LLMEXP_API_KEY"


@dataclass(frozen=True)
class ServerAddress:
    """A server's host and port, whether it speaks TLS, and the path below which it answers."""

    host: str
    port: int
    is_tls: bool = False
    below: str = ""

    @classmethod
    def of(cls, text: str) -> Self:
        """Read an address such as http://127.0.0.1:8000; raises ConfigError where it is none.

        A path is kept, but for the /v1 with which addresses of this API are often given.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"address {text}: {error}") from None
        if parts.username is not None or parts.query or parts.fragment:
            raise ConfigError(f"address: leave the key out, because addresses are recorded: export {API_KEY}")
        if parts.scheme not in PORTS or not parts.hostname:
            raise ConfigError(f"address {text}: expected http:// or https://, a host and a port")
        below = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or PORTS[parts.scheme], parts.scheme == "https", below)

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def api_key() -> str:
    """Return the key of LLMEXP_API_KEY, empty where there is none; raises ConfigError for one that HTTP forbids.

    The key itself stands in no message and in no record.
    """
    key = os.environ.get(API_KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{API_KEY} has characters that an HTTP header cannot contain")
    return key


def key_headers() -> dict[str, str]:
    """Return the header with the key of LLMEXP_API_KEY, if there is one; raises ConfigError as `api_key` does."""
    key = api_key()
    return {"Authorization": f"Bearer {key}"} if key else {}
