"""Simulated conversations on the servers of queues.py: a turn is due some time after the answer to the one before."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from benchmarks.queues import Batching, Server, Servers, arrive
from llmexp.serving.analysis.backlog import Load


@dataclass(frozen=True)
class Turns:
    """So many requests a conversation, and the mean time to think between them, in mean service times."""

    number: int
    think_s: float = 0.0

    def __str__(self) -> str:
        return f"conversations of {self.number} turns" + (f", {self.think_s:g} between" if self.think_s else "")


@dataclass
class Talk:
    """The conversations of one load: what is due next, and when each request was due and ended."""

    turns: Turns
    draw: random.Random
    begun_s: list[float]
    due: list[tuple[float, int, int]] = field(init=False)
    requests: list[tuple[float, float]] = field(default_factory=list)
    ends_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.due = [(begun_s, talk, 0) for talk, begun_s in enumerate(self.begun_s)]
        heapify(self.due)

    def ended(self, asked: tuple[float, int, int], end_s: float) -> None:
        """Take the end of a request, after which the next turn is due."""
        due_s, talk, turn = asked
        self.requests.append((due_s, end_s))
        if turn + 1 == self.turns.number:
            self.ends_s[talk] = end_s
            return
        think_s = self.draw.expovariate(1 / self.turns.think_s) if self.turns.think_s else 0.0
        heappush(self.due, (end_s + think_s, talk, turn + 1))

    @property
    def conversations(self) -> Load:
        """The conversations as requests that end with their last answers."""
        return Load(self.begun_s, [self.ends_s[talk] - begun_s for talk, begun_s in enumerate(self.begun_s)])

    @property
    def latencies_s(self) -> list[float]:
        """The latencies of single requests, in the order in which they were due."""
        return [end_s - due_s for due_s, end_s in sorted(self.requests)]


def talks(server: Server, turns: Turns, utilization: float, conversations: int, draw: random.Random) -> Talk:
    """Return conversations that begin at random times, and bring `utilization` times what the server can do."""
    per_s = utilization * server.capacity_per_s / turns.number
    talk = Talk(turns, draw, arrive("Poisson", per_s, conversations, draw))
    _serve_apart(server, talk) if isinstance(server, Servers) else _serve_together(server, talk)
    return talk


def _serve_apart(server: Servers, talk: Talk) -> None:
    free_s, services = [0.0] * server.count, server.service(talk.draw)
    while talk.due:
        asked = heappop(talk.due)
        end_s = max(free_s[0], asked[0]) + next(services)
        heapreplace(free_s, end_s)
        talk.ended(asked, end_s)


def _serve_together(server: Batching, talk: Talk) -> None:
    """Serve as Batching.latencies_s does, with requests that become due while others are at work."""
    lengths, batch = server.lengths(talk.draw), list[tuple[int, tuple[float, int, int]]]()
    now_s, step = 0.0, 0
    while talk.due or batch:
        if not batch:
            now_s = max(now_s, talk.due[0][0])
        while talk.due and talk.due[0][0] <= now_s and len(batch) < server.slots:
            heappush(batch, (step + max(1, round(server.TOKENS * next(lengths))), heappop(talk.due)))
        step_s, steps = (1 + len(batch) * server.growth) / server.TOKENS, batch[0][0] - step
        if talk.due and len(batch) < server.slots:
            steps = min(steps, max(1, int((talk.due[0][0] - now_s) / step_s) + 1))
        step, now_s = step + steps, now_s + steps * step_s
        while batch and batch[0][0] == step:
            talk.ended(heappop(batch)[1], now_s)
