"""Each engine's form of requests, and the reader of its events, against a server that speaks its protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from threading import Thread

import msgspec
import pytest
from protocol_server import VOCABULARY, greedy, server

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import body_of
from llmexp.launchers.serving.client.generate_stream import read_token
from llmexp.launchers.serving.load import Load, Request, run
from llmexp.registry import get_engine
from llmexp.schema import DenseModel
from llmexp.serving.engine import ServingEngine, ServingSpec
from llmexp.serving.plan.server_plan import RequestForm
from llmexp.serving.record.requests import RequestSample

MODEL = DenseModel(
    name="small",
    architecture="llama",
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=48,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_positions=256,
)
SERVED = ServingSpec(MODEL, "bf16", "cuda", positions=64, requests=4)
PROTOCOLS = {
    "vllm": "ids",
    "transformers": "words",
    "lightllm": "lightllm",
    "tgi": "tgi",
}
OUTPUT = 20
KEY = "made-up-key-0123"
# LightLLM has to be told an end token, and is told 0: the last prompt's output has it, and shall not end there.
WITH_ZERO = next([place] for place in range(VOCABULARY) if 0 in greedy([place], OUTPUT)[:-1])
PROMPTS = [[5, 26, 0, 511], [7] * 9, WITH_ZERO]
Serve = Callable[..., Address]


@pytest.fixture
def serve() -> Iterator[Serve]:
    begun = []

    def begin(protocol: str, key: str = "") -> Address:
        found = server(0, protocol, key)
        begun.append(found)
        Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        return Address("127.0.0.1", found.server_address[1])

    yield begin
    for one in begun:
        one.shutdown()
        one.server_close()


def form_of(engine: str) -> RequestForm:
    found = get_engine("serve", engine)
    assert isinstance(found, ServingEngine)
    return found.server(SERVED).form


def ask(address: Address, form: RequestForm, headers: dict[str, str] | None = None) -> list[RequestSample]:
    found: list[RequestSample] = []

    async def going() -> None:
        async with Client(address, headers) as client:
            messages = [client.message(form.path, body_of(form, prompt, OUTPUT)) for prompt in PROMPTS]
            requests = [Request(place, each, len(PROMPTS[place]), OUTPUT) for place, each in enumerate(messages)]
            await Load(client, form, found.append).closed(requests, 2)

    run(going())
    return sorted(found, key=lambda sample: sample.index)


@pytest.mark.parametrize("engine", PROTOCOLS)
def test_every_token_of_an_engine_is_counted_and_known_by_its_id(engine: str, serve: Serve) -> None:
    found = ask(serve(PROTOCOLS[engine]), form_of(engine))
    assert [sample.problem for sample in found] == [""] * len(PROMPTS)
    assert [sample.token_ids for sample in found] == [greedy(prompt, OUTPUT) for prompt in PROMPTS]
    assert [sample.usage_prompt_tokens for sample in found] == [len(prompt) for prompt in PROMPTS]
    assert [(sample.usage_output_tokens, sample.finish_reason) for sample in found] == [(OUTPUT, "length")] * 3
    assert [sample.differences for sample in found] == [[]] * len(PROMPTS)
    assert all(len(sample.chunk_us) == len(sample.chunk_tokens or []) for sample in found)


@pytest.mark.parametrize(
    ("engine", "protocol", "problem"),
    [
        ("tgi", "lightllm", "HTTP status 417: .*no token ids"),
        ("lightllm", "tgi", "HTTP status 422: .*no text"),
        ("vllm", "words", "HTTP status 422: .*ignore_eos"),
        ("vllm", "tgi", "HTTP status 404: no such route"),
    ],
)
def test_a_server_of_another_protocol_is_told_by_its_own_words(
    engine: str, protocol: str, problem: str, serve: Serve
) -> None:
    for sample in ask(serve(protocol), form_of(engine)):
        assert re.match(problem, sample.problem)


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ({"error": "Model is overloaded", "error_type": "overloaded"}, "reports in its stream: Model is overloaded"),
        ({"error": "a\nb", "error_type": "generation"}, "reports in its stream: a b"),
    ],
)
def test_an_error_in_the_stream_is_a_problem(event: dict[str, str], problem: str) -> None:
    assert problem in read_token(json.dumps(event).encode()).problem


@pytest.mark.parametrize("event", [b"{}", b"[]", b"{", b'{"token": 1}', b'{"token": {"id": "a"}}'])
def test_what_is_no_event_is_refused(event: bytes) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        read_token(event)


def test_counts_that_a_server_does_not_know_are_none() -> None:
    piece = read_token(b'{"token": {"id": 3, "text": " aaad", "prompt_tokens": 0, "count_output_tokens": 1}}')
    assert (piece.prompt_tokens, piece.output_tokens, piece.token_ids) == (None, 1, (3,))


def test_a_running_server_is_asked_for_its_own_model(serve: Serve) -> None:
    form = form_of("vllm")
    assert all("does not exist" in sample.problem for sample in ask(serve("ids"), form.of_model("other")))
    assert form_of("tgi").of_model("other") == form_of("tgi"), "it has no model's name in its requests"


def test_a_key_is_sent_and_is_in_no_record_where_the_server_repeats_it(serve: Serve) -> None:
    address, form = serve("ids", KEY), form_of("vllm")
    assert not any(sample.problem for sample in ask(address, form, {"Authorization": f"Bearer {KEY}"}))
    refused = ask(address, form, {"Authorization": "Bearer another-key-456"})
    assert [sample.problem for sample in refused] == ["HTTP status 401: no such key: …"] * len(PROMPTS)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("no such key: made-up-key-0123, sorry", "no such key: …, sorry"),
        ("cut off within it: made-up-ke", "cut off within it: …"),
        ("cut off after Bearer made-up-key-012", "cut off after …"),
        ("it is made", "it is …"),
        ("a mad", "a mad"),
    ],
)
def test_words_that_a_server_repeats_lose_the_key_wherever_they_are_cut(words: str, left: str) -> None:
    client = Client(Address("127.0.0.1", 1), {"Authorization": f"Bearer {KEY}"})
    assert client.without_secrets(words) == left
