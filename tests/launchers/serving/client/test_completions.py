from __future__ import annotations

import json
from typing import Any

import pytest

from llmexp.errors import ConfigError
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import Completion, Piece, body_of, read_completion
from llmexp.launchers.serving.engines.lightllm import ENGINE as LIGHTLLM
from llmexp.launchers.serving.engines.tgi import ENGINE as TGI
from llmexp.launchers.serving.engines.vllm import ENGINE as VLLM
from llmexp.serving.analysis.request_latency import end_to_end_s, time_per_output_token_s, time_to_first_token_s
from llmexp.serving.config.load import Sampling
from llmexp.serving.engine import IGNORE_END, ServingEngine
from llmexp.serving.plan.server_plan import OUTPUT_TOKENS, PROMPT, RequestForm
from llmexp.serving.record.requests import RequestSample


def test_a_body_asks_for_greedy_tokens_of_this_many() -> None:
    form = RequestForm.completions(token_ids=True, model="tiny", ignore_eos=True)
    assert json.loads(body_of(form, [5, 6], 7)) == {
        "model": "tiny",
        "prompt": [5, 6],
        "max_tokens": 7,
        "stream": True,
        "temperature": 0,
        "ignore_eos": True,
    }


def test_a_body_whose_tokens_are_drawn_has_the_requests_number_as_its_seed() -> None:
    form = RequestForm.completions(token_ids=True).drawing(VLLM.drawn_by(Sampling(temperature=0.5, top_p=0.9)))
    asked = json.loads(body_of(form, [5], 7, number=3))
    assert {key: asked[key] for key in ("temperature", "top_p", "seed")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
    }


def test_several_answers_to_a_prompt_are_told_apart_and_counted_together() -> None:
    form = RequestForm.completions(token_ids=True).drawing(VLLM.drawn_by(Sampling(n=2)))
    assert json.loads(body_of(form, [5], 3))["n"] == form.answers == 2
    answer = Completion(form)
    answer.headed(200)
    pieces = [(0, [7], 1.0), (1, [8], 1.0), (1, [9], 2.0), (0, [6], 2.5), (0, [5], 3.0), (1, [4], 3.0)]
    for index, ids, at_s in pieces:
        event = {"choices": [{"index": index, "text": f" {ids[0]}", "token_ids": ids}]}
        answer.body(f"data: {json.dumps(event)}\n\n".encode(), at_s)
    found = answer.sample(0, (1, 3), (0.0, 3.0), 0.0)
    assert (found.asked_output_tokens, found.output_tokens, found.differences) == (6, 6, [])
    assert found.token_ids == [7, 6, 5, 8, 9, 4]
    assert found.chunk_answers == [index for index, _, _ in pieces]
    assert form.telling().answers == 1


def whole(body: dict[str, Any], status: int = 200) -> RequestSample:
    answer = Completion(RequestForm.completions(token_ids=True).drawing(VLLM.drawn_by(Sampling(beams=2))))
    answer.headed(status)
    data = json.dumps(body).encode()
    for at_s, piece in ((1.0, data[:9]), (2.0, data[9:])):
        answer.body(piece, at_s)
    answer.finish(2.0)
    return answer.sample(0, (1, 3), (0.0, 2.0), 0.0)


def test_beams_come_whole_and_have_no_times_of_tokens() -> None:
    form = RequestForm.completions(token_ids=True, **IGNORE_END).drawing(VLLM.drawn_by(Sampling(beams=2)))
    asked = json.loads(body_of(form, [5], 3))
    assert (asked["n"], asked["stream"], asked["use_beam_search"], asked["stream_options"]) == (2, False, True, None)
    choices = [
        {"index": index, "text": "x", "token_ids": ids, "finish_reason": "length"}
        for index, ids in enumerate(([7, 6, 5], [7, 6, 4]))
    ]
    found = whole({"choices": choices, "usage": {"prompt_tokens": 1, "completion_tokens": 6}})
    assert (found.problem, found.differences, found.output_tokens) == ("", [], 6)
    assert found.token_ids == [7, 6, 5, 7, 6, 4]
    assert (found.chunk_us, found.chunk_tokens, found.chunk_answers) == ([], None, None)
    assert (time_to_first_token_s(found), time_per_output_token_s(found), end_to_end_s(found)) == (None, None, 2.0)
    greedy = json.loads(body_of(form.telling(), [5], 3))
    assert greedy["stream"] is True
    assert not greedy.keys() & {"n", "use_beam_search"}


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({"error": {"message": "no beams"}}, 200, "no beams"),
        ({"error": "too many"}, 400, "HTTP status 400"),
        ({"choices": 3}, 200, "the answer is no completion"),
        ({"choices": []}, 200, "the answer is no completion"),
        ({"detail": "none"}, 200, "the answer is no completion"),
    ],
)
def test_a_whole_answer_that_is_none_is_a_problem(body: dict[str, Any], status: int, problem: str) -> None:
    assert problem in whole(body, status).problem


@pytest.mark.parametrize(("engine", "keys"), [(TGI, {"temperature", "seed"}), (LIGHTLLM, {"temperature"})])
def test_a_top_p_of_1_is_left_out_and_so_is_what_a_server_does_not_take(engine: ServingEngine, keys: set[str]) -> None:
    form = RequestForm.generate_stream(token_ids=False).drawing(engine.drawn_by(Sampling()))
    given = json.loads(body_of(form, [5], 7))["parameters"]
    assert given.keys() == {"max_new_tokens", "do_sample", *keys}
    assert given["do_sample"] is True


def test_a_server_without_token_ids_gets_their_words() -> None:
    assert json.loads(body_of(RequestForm.completions(token_ids=False), [5, 26], 7))["prompt"] == " aaaf aaba"


def test_a_form_may_hold_the_request_anywhere() -> None:
    form = RequestForm(body={"inputs": PROMPT, "parameters": {"max_new_tokens": OUTPUT_TOKENS, "a": 1}}, token_ids=True)
    assert json.loads(body_of(form, [5], 7)) == {"inputs": [5], "parameters": {"max_new_tokens": 7, "a": 1}}


@pytest.mark.parametrize(
    ("form", "events"),
    [
        (
            RequestForm.completions(token_ids=True),
            [
                {"choices": [{"text": " a b", "token_ids": [1, 2], "logprobs": {"token_logprobs": [-0.5, -1.25]}}]},
                {"choices": [{"text": " c", "token_ids": [3], "logprobs": {"tokens": [" c"], "token_logprobs": [-2]}}]},
            ],
        ),
        (
            RequestForm.generate_stream(token_ids=True),
            [
                {"token": {"id": token, "text": " a", "logprob": said}}
                for token, said in ((1, -0.5), (2, -1.25), (3, -2))
            ],
        ),
    ],
)
def test_logprobs_are_those_of_the_tokens_in_their_order(form: RequestForm, events: list[dict[str, Any]]) -> None:
    answer = Completion(form)
    answer.headed(200)
    for event in events:
        answer.body(f"data: {json.dumps(event)}\n\n".encode(), 1.0)
    assert answer.logprobs == [-0.5, -1.25, -2.0]
    assert answer.sample(0, (1, 3), (0.0, 1.0), 0.0).token_ids == [1, 2, 3]


def test_a_logprob_that_a_server_leaves_out_leaves_out_those_of_its_event() -> None:
    found = read_completion(b'{"choices": [{"text": " a", "logprobs": {"token_logprobs": [null, -1]}}]}')
    assert found.logprobs is None


@pytest.mark.parametrize(
    ("token_ids", "texts", "tokens", "chunk_tokens"),
    [
        (False, [" aaaf", " aaba aaaa"], [5, 26, 0], [1, 2]),
        (False, [" aa", "af"], None, None),
        (True, [" aaaf"], [5], [1]),
        (True, [" another text"], None, None),
    ],
)
def test_words_are_tokens_where_the_server_has_no_ids(
    token_ids: bool, texts: list[str], tokens: list[int] | None, chunk_tokens: list[int] | None
) -> None:
    answer = Completion(RequestForm.completions(token_ids))
    answer.headed(200)
    for at_s, text in enumerate(texts):
        answer.body(b"data: " + json.dumps({"choices": [{"text": text}]}).encode() + b"\n\n", at_s)
    found = answer.sample(0, (1, 3), (0.0, 9.0), 0.0)
    assert (found.token_ids, found.chunk_tokens) == (tokens, chunk_tokens)
    assert found.text == ("" if tokens else "".join(texts))


@pytest.mark.parametrize(
    ("event", "piece"),
    [
        ({"choices": [{"text": "a", "token_ids": [1], "finish_reason": None}]}, Piece("a", [1])),
        ({"choices": [{"text": "a", "finish_reason": "length"}], "usage": None}, Piece("a", None, "length")),
        (
            {"choices": [{"text": None}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
            Piece(None, None, None, 3, 1),
        ),
        ({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}, Piece(None, None, None, 3, 4)),
        ({"error": "gone"}, Piece(problem="the server reports in its stream: gone")),
        ({"object": "error", "message": "gone"}, Piece(problem="the server reports in its stream: gone")),
        ({"error": None, "choices": [{"text": "a"}]}, Piece("a")),
    ],
)
def test_what_an_event_says(event: dict[str, object], piece: Piece) -> None:
    assert read_completion(json.dumps(event).encode()) == piece


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8000", Address("127.0.0.1", 8000)),
        ("http://127.0.0.1:8000/v1/", Address("127.0.0.1", 8000)),
        ("https://example.org/proxy/v1", Address("example.org", 443, True, "/proxy")),
        ("http://[::1]:80", Address("::1", 80)),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert Address.of(text) == address


@pytest.mark.parametrize("text", ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:99999", "http://a:b"])
def test_what_is_no_address_is_refused_with_what_was_typed(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^address {text}: "):
        Address.of(text)


def test_a_key_in_an_address_is_refused_without_printing_it() -> None:
    with pytest.raises(ConfigError, match=r"^address: ") as refused:
        Address.of("http://me:s3cret@127.0.0.1:8000")
    assert "s3cret" not in str(refused.value)


def test_a_message_has_its_length_and_headers() -> None:
    client = Client(Address.of("http://[::1]:80/below"), {"Authorization": "Bearer a"})
    head, _, body = client.message("/v1/completions", b"{}").partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    assert (first, body) == (b"POST /below/v1/completions HTTP/1.1", b"{}")
    assert {b"Host: [::1]:80", b"Content-Length: 2", b"Authorization: Bearer a"} <= set(headers)


def test_a_header_cannot_end_its_line() -> None:
    with pytest.raises(ConfigError, match="a line break"):
        Client(Address("a", 1), {"Authorization": "a\r\nX: b"}).message("/", b"")
