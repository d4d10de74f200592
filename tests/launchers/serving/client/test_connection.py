from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from itertools import count

import pytest
from scripted_server import (
    CHUNKED,
    DONE,
    HEAD,
    WHOLE,
    Handler,
    Watched,
    answering,
    chunk,
    chunked,
    in_pieces,
    read_request,
    serving,
    sized,
    token,
    usage,
)

from llmexp.launchers.serving.client import client as client_module
from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.connection import Patience, TransferError
from llmexp.launchers.serving.load import run

# A test that waits for what never comes shall say so.
SHORT = Patience(silent_s=20, answer_s=60)
PINGED = chunked(b": ping\n\n", token("größe"), b": ping\n\n", token(" 東", "length"), usage(3, 2), DONE)
BODY = token("one") + token(" two", "length") + usage(3, 2) + DONE


async def post(client: Client, answer: Watched) -> Watched:
    await client.post(client.message("/v1/completions", b"{}"), answer)
    answer.finish(0.0)
    return answer


def ask(handle: Handler, patience: Patience = SHORT) -> Watched:
    """The answer of a server that handles one request; a transfer that breaks off is its problem."""

    async def asking() -> Watched:
        async with serving(handle) as address, Client(address, patience=patience) as client:
            answer = Watched()
            try:
                return await post(client, answer)
            except TransferError as error:
                answer.problem = str(error)
            return answer

    return run(asking())


def outcome(answer: Watched) -> tuple[str, list[int | None], str]:
    return "".join(answer.texts), answer.usage, answer.problem


class TestSplits:
    """The same answer in pieces, each sent when the client has the one before."""

    async def _asked(self, splits: Iterator[list[bytes]]) -> list[Watched]:
        answers: list[Watched] = []
        pieces: list[bytes] = []
        async with (
            serving(in_pieces(pieces, lambda: answers[-1].came)) as address,
            Client(address, patience=SHORT) as client,
        ):
            for pieces[:] in splits:
                answers.append(Watched())
                await post(client, answers[-1])
        return answers

    def test_an_answer_that_is_split_anywhere_is_the_same(self) -> None:
        answers = run(self._asked([PINGED[:at], PINGED[at:]] for at in range(1, len(PINGED))))
        assert len(answers) == len(PINGED) - 1
        assert {str(outcome(answer)) for answer in answers} == {str(("größe 東", [3, 2], ""))}
        assert all(len(answer.times_s) == 2 for answer in answers)

    def test_byte_by_byte(self) -> None:
        (answer,) = run(self._asked(iter([[PINGED[at : at + 1] for at in range(len(PINGED))]])))
        assert outcome(answer) == ("größe 東", [3, 2], "")
        assert len(set(answer.times_s)) == 2

    def test_each_chunk_has_the_time_at_which_it_came(self) -> None:
        pieces = [CHUNKED, chunk(b": ping\n\n"), chunk(token("a")), chunk(token("b")), chunk(token("c") + token("d"))]
        (answer,) = run(self._asked(iter([[*pieces, chunk(DONE) + b"0\r\n\r\n"]])))
        first_s, second_s, third_s, fourth_s = answer.times_s
        assert answer.sent_s is not None
        assert answer.first_byte_s is not None
        assert answer.sent_s < answer.first_byte_s < first_s < second_s < third_s == fourth_s


class TestFraming:
    def test_a_length(self) -> None:
        assert outcome(ask(answering(sized("200 OK", BODY)))) == ("one two", [3, 2], "")

    def test_the_end_of_the_connection(self) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(HEAD + b"\r\n" + BODY)
            writer.write_eof()
            await reader.read()

        assert outcome(ask(handle)) == ("one two", [3, 2], "")

    @pytest.mark.parametrize(
        "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"]
    )
    def test_an_answer_that_only_announces(self, interim: bytes) -> None:
        answer = ask(answering(interim + WHOLE))
        assert (answer.status, *outcome(answer)) == (200, "one two", [3, 2], "")

    @pytest.mark.parametrize(
        ("sent", "problem"),
        [
            (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP: "),
            (CHUNKED + b"zz\r\n", "the answer is not HTTP: "),
            (WHOLE + WHOLE, "the server sent a second answer"),
            (
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
                "the server changed",
            ),
        ],
    )
    def test_what_is_no_answer(self, sent: bytes, problem: str) -> None:
        assert ask(answering(sent)).problem.startswith(problem)


def connections_of(answer: bytes, requests: int = 3) -> int:
    """How many connections so many requests in turn took."""
    opened = count()

    async def asking() -> int:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            next(opened)
            await answering(answer)(reader, writer)

        async with serving(handle) as address, Client(address, patience=SHORT) as client:
            for _ in range(requests):
                assert (await post(client, Watched())).problem == ""
        return next(opened)

    return run(asking())


class TestKeeping:
    def test_a_connection_is_kept(self) -> None:
        assert connections_of(WHOLE) == 1

    @pytest.mark.parametrize(
        "answer", [sized("200 OK", BODY, b"Connection: close"), b"HTTP/1.0 " + sized("200 OK", BODY)[9:]]
    )
    def test_one_that_the_server_does_not_keep_is_not_used_again(self, answer: bytes) -> None:
        assert connections_of(answer) == 3

    def test_one_that_was_idle_for_long_is_not_used_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_module, "IDLE_LIMIT_S", 0.0)
        assert connections_of(WHOLE) == 3

    def test_one_that_the_server_has_closed_meanwhile_is_not_used_again(self) -> None:
        async def asking() -> list[str]:
            ended = asyncio.Event()

            async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await read_request(reader)
                writer.write(WHOLE)
                writer.write_eof()
                await reader.read()
                ended.set()

            problems = []
            async with serving(handle) as address, Client(address, patience=SHORT) as client:
                for _ in range(3):
                    ended.clear()
                    problems.append((await post(client, Watched())).problem)
                    await ended.wait()
            return problems

        assert run(asking()) == ["", "", ""]


def reset(writer: asyncio.StreamWriter) -> None:
    own: socket.socket = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


class TestFailures:
    def test_a_reset_in_the_middle_keeps_what_came(self) -> None:
        async def asking() -> Watched:
            answer = Watched()

            async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await read_request(reader)
                writer.write(CHUNKED + chunk(token("one")))
                await answer.came.wait()
                reset(writer)

            async with serving(handle) as address, Client(address, patience=SHORT) as client:
                with pytest.raises(TransferError, match="in the middle of its answer"):
                    await post(client, answer)
            return answer

        assert run(asking()).texts == ["one"]

    def test_an_end_in_the_middle(self) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(CHUNKED + chunk(token("one")))
            writer.write_eof()
            await reader.read()

        assert ask(handle).problem == "the server closed the connection in the middle of its answer"

    def test_an_end_before_the_answer(self) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)

        assert ask(handle).problem.endswith(" before its answer")

    def test_a_server_that_says_nothing(self) -> None:
        answer = ask(silent, Patience(silent_s=0.05))
        assert (answer.problem, answer.first_byte_s) == ("the server sent nothing for 0.05 s", None)

    def test_a_server_that_stops_in_the_middle(self) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + chunk(token("one")))
            await silent(reader, writer)

        answer = ask(handle, Patience(silent_s=0.05))
        assert outcome(answer) == ("one", [None, None], "the server sent nothing for 0.05 s")

    def test_pings_alone_do_not_keep_an_answer_going(self) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED)
            while True:
                writer.write(chunk(b": ping\n\n"))
                await writer.drain()
                await asyncio.sleep(0)

        assert ask(handle, Patience(answer_s=0.05)).problem == "the answer was not complete after 0.05 s"

    @pytest.mark.parametrize("head", [CHUNKED, b"HTTP/1.1 200 OK\r\nX: "], ids=["body", "header"])
    def test_an_answer_without_an_end_is_given_up(self, head: bytes) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(head)
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(chunk(b": ping\n\n" * 1000) if head == CHUNKED else b"x" * 8000)
                    await writer.drain()

        assert ask(handle, Patience(answer_bytes=2**20)).problem == "the answer is larger than 1 MiB"

    def test_nobody_listens(self) -> None:
        async def asking(port: int) -> None:
            async with Client(Address("127.0.0.1", port)) as client:
                await post(client, Watched())

        with contextlib.closing(socket.socket()) as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            with pytest.raises(TransferError, match=rf"127.0.0.1:{port} cannot be reached: .*refused"):
                run(asking(port))

    def test_a_server_that_takes_no_connection(self) -> None:
        async def asking(port: int) -> None:
            async with Client(Address("127.0.0.1", port), patience=Patience(connect_s=0.05)) as client:
                await asyncio.gather(*(post(client, Watched()) for _ in range(4)))

        with contextlib.closing(socket.socket()) as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            with pytest.raises(TransferError, match=r"(accepted no connection within 0.05|sent nothing)"):
                run(asking(full.getsockname()[1]))
