"""A server that speaks the protocols of inference servers, and refuses what these refuse.

Its tokens are a plain function of the prompt: what is under test is how requests and events are written, and a model
would need torch's import for each server. What real servers compute is compared in test_real_servers.py.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llmexp.launchers.serving.words import text_of, tokens_of, word

VOCABULARY = 512


class RefusedError(Exception):
    """The request is not one of this protocol; its status and words are those of the answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def greedy(prompt: list[int], count: int) -> list[int]:
    tokens, state = [], sum((place + 1) * token for place, token in enumerate(prompt))
    for _ in range(count):
        state = (state * 1103515245 + 12345) % (1 << 31)
        tokens.append(state % VOCABULARY)
    return tokens


def completions_of_ids(asked: dict[str, Any]) -> Iterator[bytes]:
    """As vLLM 0.32 does: ids where they are asked for, several tokens an event, the usage in an event of its own."""
    prompt = _ids(asked["prompt"], 400)
    if asked.get("model") != "llmexp":
        raise RefusedError(404, f"The model `{asked.get('model')}` does not exist.")
    tokens = greedy(prompt, asked["max_tokens"])
    told = asked.get("return_token_ids")
    for begin in range(0, len(tokens), 3):
        some, last = tokens[begin : begin + 3], begin + 3 >= len(tokens)
        more = {"token_ids": some} if told else {}
        choice = {"index": 0, "text": text_of(some), "finish_reason": "length" if last else None, **more}
        yield _event({"object": "text_completion", "choices": [choice], "usage": None})
    if asked.get("stream_options", {}).get("include_usage"):
        counts = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        yield _event({"object": "text_completion", "choices": [], "usage": counts})
    yield b"data: [DONE]\n\n"


def completions_of_words(asked: dict[str, Any]) -> Iterator[bytes]:
    """As `transformers serve` 5.23 does: text in, a token an event, the usage in the last one, no [DONE]."""
    if unknown := asked.keys() - {"prompt", "max_tokens", "stream", "temperature", "model", "stream_options"}:
        raise RefusedError(422, f"Unexpected keys in the request: {unknown}")
    prompt = tokens_of(_text(asked["prompt"], 400))
    tokens = greedy(prompt, asked["max_tokens"])
    for token in tokens:
        yield _event({"choices": [{"index": 0, "text": word(token), "finish_reason": None}]})
    counts = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
    yield _event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": counts})


def text_generation_inference(asked: dict[str, Any]) -> Iterator[bytes]:
    """As text-generation-inference 3.3.7 does: details in the last event where they are asked for."""
    prompt, given = tokens_of(_text(asked["inputs"], 422)), asked["parameters"]
    if given.get("temperature") == 0:
        raise RefusedError(422, "Input validation error: `temperature` must be strictly positive")
    tokens = greedy(prompt, given["max_new_tokens"])
    for index, token in enumerate(tokens, 1):
        last = index == len(tokens)
        counts = {"finish_reason": "length", "generated_tokens": len(tokens), "seed": None, "input_length": len(prompt)}
        yield _event(
            {
                "index": index,
                "token": {"id": token, "text": word(token), "logprob": -1.5, "special": False},
                "generated_text": text_of(tokens) if last else None,
                "details": counts if last and given.get("details") else None,
            },
            b"data:",
        )


def lightllm(asked: dict[str, Any]) -> Iterator[bytes]:
    """As LightLLM 1.0.1 does: counts in every event; without ignore_eos token 0, its end token, would end an output."""
    prompt, given = _ids(asked["inputs"], 417), asked["parameters"]
    tokens = greedy(prompt, given["max_new_tokens"])
    if not given.get("ignore_eos") and 0 in tokens:
        tokens = tokens[: tokens.index(0) + 1]
    for index, token in enumerate(tokens, 1):
        last = index == len(tokens)
        counts = {"count_output_tokens": index, "prompt_tokens": len(prompt)}
        shown = {"id": token, "text": word(token), "logprob": -1.5, "special": False, **counts}
        ended = {"finished": last, "finish_reason": "length" if last else None}
        yield _event({"token": shown, "generated_text": None, **ended, "details": None}, b"data:")


PROTOCOLS = {
    "ids": ("/v1/completions", completions_of_ids),
    "words": ("/v1/completions", completions_of_words),
    "tgi": ("/generate_stream", text_generation_inference),
    "lightllm": ("/generate_stream", lightllm),
}


class Handler(BaseHTTPRequestHandler):
    """It answers /health, and the route of its protocol; a server with a key refuses others, and repeats theirs."""

    protocol_version = "HTTP/1.1"
    protocol = "ids"
    key = ""

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/health" else 404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        path, stream = PROTOCOLS[self.protocol]
        given = self.headers.get("authorization", "")
        if self.key and given != f"Bearer {self.key}":
            self._answer(401, f"no such key: {given}".encode())
            return
        if self.path != path:
            self._answer(404, b"no such route")
            return
        try:
            pieces = list(stream(json.loads(body)))
        except RefusedError as error:
            self._answer(error.status, json.dumps({"error": str(error)}).encode())
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def server(port: int, protocol: str, key: str = "") -> ThreadingHTTPServer:
    handler = type("Handler", (Handler,), {"protocol": protocol, "key": key})
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def _ids(given: Any, status: int) -> list[int]:
    if not (isinstance(given, list) and given and all(isinstance(each, int) for each in given)):
        raise RefusedError(status, f"no token ids: {given!r}")
    if max(given) >= VOCABULARY:
        raise RefusedError(status, f"{max(given)} is out of the vocabulary")
    return given


def _text(given: Any, status: int) -> str:
    if not (isinstance(given, str) and given):
        raise RefusedError(status, f"no text: {given!r}")
    return given


def _event(said: dict[str, Any], begin: bytes = b"data: ") -> bytes:
    return begin + json.dumps(said).encode() + b"\n\n"


if __name__ == "__main__":
    server(int(sys.argv[1]), sys.argv[2], os.environ.get("LLMEXP_API_KEY", "")).serve_forever()
