"""vLLM's connectors, which bring keys and values from the server that read a prompt to the one that generates.

The example connector writes them to files, on any device. NIXL moves them between GPUs; a prefill's answer then says
where they lie, which the request for the decode repeats.
"""

from __future__ import annotations

import json
from typing import Any, Literal

Role = Literal["prefill", "decode"]
_ROLES: dict[Role, str] = {"prefill": "kv_producer", "decode": "kv_consumer"}
# As vLLM's documentation of NIXL has it; the server fills in the rest.
_ASKED_OF_NIXL = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
KEY = "kv_transfer_params"


def flags(connector: str, role: Role, folder: str) -> list[str]:
    """Return the words of a server's command line; files lie in the folder."""
    if connector == "ExampleConnector":
        more: dict[str, Any] = {"kv_connector_extra_config": {"shared_storage_path": folder}}
        return ["--kv-transfer-config", json.dumps({"kv_connector": connector, "kv_role": _ROLES[role], **more})]
    return ["--kv-transfer-config", json.dumps({"kv_connector": connector, "kv_role": "kv_both"})]


def variables(connector: str, port: int) -> dict[str, str]:
    """Return the variables of a server whose connector listens itself, on this machine only."""
    if connector != "NixlConnector":
        return {}
    return {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port)}


def of_prefill(connector: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return a request's body for the server that reads its prompt: one token, and no stream."""
    body = {key: given for key, given in asked.items() if key != "stream_options"} | {
        "max_tokens": 1,
        "stream": False,
    }
    return body | ({KEY: _ASKED_OF_NIXL} if connector == "NixlConnector" else {})


def of_decode(asked: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return a request's body for the server that generates, with where the prefill left its keys and values."""
    return asked | ({KEY: answer[KEY]} if answer.get(KEY) else {})
