"""The bytes of a request to a server's address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmexp.errors import ConfigError
from llmexp.launch.server_address import ServerAddress


@dataclass(frozen=True)
class Address(ServerAddress):
    """An address to which requests are sent."""

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
