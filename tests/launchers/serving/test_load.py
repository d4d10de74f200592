from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import count, islice, pairwise

import pytest
from scripted_server import (
    DONE,
    FORM,
    WHOLE,
    Handler,
    answering,
    chunked,
    event,
    read_request,
    serving,
    sized,
    token,
    usage,
)

from llmexp.errors import ConfigError
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import body_of
from llmexp.launchers.serving.client.connection import Patience
from llmexp.launchers.serving.load import Load, Request, run
from llmexp.serving.analysis.request_latency import send_delay_s, time_to_first_token_s
from llmexp.serving.record.requests import RequestSample

SHORT = Patience(silent_s=20, answer_s=60)
BODY = body_of(FORM, [1, 2, 3], 2)


def requests(client: Client) -> Iterable[Request]:
    message = client.message(FORM.path, BODY)
    return (Request(index, message, 3, 2) for index in count())


def load(handle: Handler, go: Callable[[Load, Iterable[Request]], object], **headers: str) -> list[RequestSample]:
    """The records of what `go` does with a load against a server, by index."""
    found: list[RequestSample] = []

    async def going() -> None:
        async with serving(handle) as address, Client(address, headers, SHORT) as client:
            await go(Load(client, FORM, found.append), requests(client))  # type: ignore[misc]

    run(going())
    return sorted(found, key=lambda one: one.index)


def one(answer: bytes, **headers: str) -> RequestSample:
    """The record of one request that is answered so."""
    (found,) = load(answering(answer), lambda load, sent: load.closed(islice(sent, 1), 1), **headers)
    return found


class TestOpen:
    def test_requests_are_sent_when_due_though_nothing_is_answered(self) -> None:
        due_s = [0.0, 0.02, 0.04, 0.06, 0.08]
        all_there = asyncio.Barrier(len(due_s))

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            await all_there.wait()
            writer.write(WHOLE)
            await reader.read()

        found = load(handle, lambda load, sent: load.open(zip(due_s, sent, strict=False)))
        assert [sample.problem for sample in found] == [""] * 5
        assert [sample.scheduled_s - found[0].scheduled_s for sample in found] == pytest.approx(due_s)
        waited_s = [time_to_first_token_s(sample) or 0.0 for sample in found]
        assert all(waited >= due_s[-1] - due for waited, due in zip(waited_s, due_s, strict=True))

    def test_none_is_sent_before_it_is_due(self) -> None:
        due_s = [place * 0.0007 for place in range(40)]
        found = load(answering(WHOLE), lambda load, sent: load.open(zip(due_s, sent, strict=False)))
        assert len(found) == 40
        assert [sample.index for sample in found if (send_delay_s(sample) or 0.0) < 0] == []

    def test_a_request_that_is_late_counts_its_wait(self) -> None:
        (found,) = load(answering(WHOLE), lambda load, sent: load.open(zip([-5.0], sent, strict=False)))
        assert (send_delay_s(found) or 0.0) >= 5
        scheduled_s, sent_s = time_to_first_token_s(found), time_to_first_token_s(found, "sent")
        assert scheduled_s is not None
        assert sent_s is not None
        assert scheduled_s - sent_s == pytest.approx(send_delay_s(found))

    def test_a_load_that_is_ended_has_a_record_of_every_request_that_was_due(self) -> None:
        async def go(load: Load, sent: Iterable[Request]) -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await load.open(zip([0.0, 0.0, 0.0, 100.0], sent, strict=False))

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        found = load(handle, go)
        assert [sample.index for sample in found] == [0, 1, 2]
        assert {sample.problem for sample in found} == {"the load ended before the answer was complete"}

    def test_requests_before_a_broken_one_have_a_record(self) -> None:
        def broken(sent: Iterable[Request]) -> Iterable[tuple[float, Request]]:
            yield from zip([0.0, 0.0], sent, strict=False)
            raise ConfigError("line 3 of the trace is no time")

        async def go(load: Load, sent: Iterable[Request]) -> None:
            with pytest.raises(ConfigError):
                await load.open(broken(sent))

        found = load(answering(WHOLE), go)
        assert [sample.index for sample in found] == [0, 1]

    def test_a_burst_may_have_more_connections_than_a_shell_lets_a_program_open(self) -> None:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        all_there = asyncio.Barrier(200)

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            await all_there.wait()
            writer.write(WHOLE)
            await reader.read()

        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        try:
            found = load(handle, lambda load, sent: load.open(zip([0.0] * 200, sent, strict=False)))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert [sample.problem for sample in found] == [""] * 200


class TestClosed:
    def test_as_many_as_asked_are_at_work_and_never_more(self) -> None:
        at_work, counts = 0, []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal at_work
            while await read_request(reader) is not None:
                at_work += 1
                counts.append(at_work)
                await four.wait()
                at_work -= 1
                writer.write(WHOLE)

        four = asyncio.Barrier(4)
        found = load(handle, lambda load, sent: load.closed(islice(sent, 24), 4))
        assert [sample.index for sample in found if not sample.problem] == list(range(24))
        assert max(counts) == 4

    def test_the_next_is_due_when_one_ends(self) -> None:
        found = load(answering(WHOLE), lambda load, sent: load.closed(islice(sent, 5), 1))
        assert all(after.scheduled_s >= before.end_s for before, after in pairwise(found))


class TestAnswers:
    @pytest.mark.parametrize(("status", "said"), [("429 Too Many Requests", "slow down"), ("500 Oops", "it broke")])
    def test_a_refusal_is_quoted_without_the_key(self, status: str, said: str) -> None:
        found = one(sized(status, f'{{"error": "{said}, key s3cret"}}'.encode()), Authorization="Bearer s3cret")
        assert found.status == int(status[:3])
        assert found.problem == f'HTTP status {status[:3]}: {{"error": "{said}, key …"}}'
        assert found.chunk_us == []

    def test_tokens_are_counted_by_usage_and_never_by_chunks(self) -> None:
        found = one(chunked(token("one two three four", "length"), usage(3, 4), DONE))
        assert (found.output_tokens, len(found.chunk_us), found.problem) == (4, 1, "")
        assert found.differences == ["2 output tokens were asked for, the server counted 4"]

    def test_tokens_are_counted_by_their_ids(self) -> None:
        found = one(chunked(token("a", token_ids=[7]), token("b", "length", token_ids=[8, 9]), DONE))
        assert (found.token_ids, found.chunk_tokens, found.output_tokens) == ([7, 8, 9], [1, 2], 3)
        assert found.differences == ["2 output tokens were asked for, it sent 3"]

    def test_a_token_without_text_counts_where_its_id_is_there(self) -> None:
        found = one(chunked(token("", token_ids=[7]), token("b", "length", token_ids=[8]), usage(3, 2), DONE))
        assert (len(found.chunk_us), found.chunk_tokens, found.differences) == (2, [1, 1], [])

    def test_events_that_show_nothing_are_no_tokens(self) -> None:
        found = one(chunked(token(""), token("a"), token("b"), token("", "length"), usage(3, 2), DONE))
        assert (len(found.chunk_us), found.text, found.finish_reason) == (2, "ab", "length")

    def test_a_prompt_that_was_cut_is_a_difference(self) -> None:
        found = one(chunked(token("ab", "length"), usage(2, 2), DONE))
        assert found.differences == ["3 prompt tokens were asked for, the server counted 2"]

    @pytest.mark.parametrize(
        ("answer", "problem"),
        [
            (chunked(token("a"), event(error={"message": "no  memory"}), DONE), "reports in its stream: no memory"),
            (chunked(token("a"), b"data: {oops\n\n"), "cannot parse an event of the stream: {oops"),
            (chunked(token("a"), b"data: [1]\n\n"), "cannot parse an event of the stream: [1]"),
            (chunked(token("a")), "the stream ended before its last token"),
            (sized("200 OK", b"<html>proxy</html>"), "the answer is not an event stream: <html>proxy</html>"),
            (sized("200 OK", b""), "the answer is not an event stream: nothing"),
            (chunked(b"data: \xff\n\n"), "cannot parse an event of the stream: \ufffd"),
        ],
    )
    def test_what_is_no_whole_answer(self, answer: bytes, problem: str) -> None:
        found = one(answer)
        assert found.problem.endswith(problem)
        assert (found.status, found.differences, found.amount) == (200, [], 0.0)


@pytest.mark.parametrize("words", [(), ("--apart",)])
def test_the_instant_server_and_the_client_agree(words: tuple[str, ...]) -> None:
    found: list[RequestSample] = []

    async def going(port: int) -> None:
        async with Client(Address("127.0.0.1", port), patience=SHORT) as client:
            message = client.message(FORM.path, body_of(FORM, range(512), 32))
            sent = (Request(index, message, 512, 32) for index in range(40))
            await Load(client, FORM, found.append).closed(sent, 8)

    command = [sys.executable, "-m", "llmexp.launchers.serving.client.instant_server", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            run(going(int(server.stdout.readline())))
        finally:
            server.kill()
    assert {(sample.problem, *sample.differences) for sample in found} == {("",)}
    assert {len(sample.chunk_us) for sample in found} == {32}
    assert {tuple(sample.token_ids or ()) for sample in found} == {tuple(range(32))}
