"""Simulated conversations: whose turns follow each other, and whose backlog tells an overload."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from benchmarks.conversations import Turns, talks
from benchmarks.queues import SERVERS, Server
from llmexp.serving.analysis.saturation import saturation

NAMES = [server.name for server in SERVERS]


@pytest.mark.parametrize("server", SERVERS, ids=NAMES)
def test_every_turn_is_due_after_the_answer_before_it(server: Server) -> None:
    found = talks(server, Turns(3, 1.0), 0.8, 20, random.Random(0))
    assert len(found.requests) == 60
    assert all(end_s > due_s for due_s, end_s in found.requests)
    assert sorted(found.ends_s) == list(range(20))
    assert all(late_s and late_s > 0 for late_s in found.conversations.latency_s)


@pytest.mark.parametrize("server", SERVERS, ids=NAMES)
def test_a_wrong_verdict_on_conversations_is_rare(server: Server) -> None:
    draw = random.Random(0)
    verdicts = {
        load: Counter(saturation([talks(server, Turns(3), load, 300, draw).conversations]).verdict for _ in range(12))
        for load in (0.8, 1.25)
    }
    # At the promised rate of 5 in 100, 4 of 12 are wrong once in 500 tries.
    assert verdicts[0.8]["overloaded"] < 4
    assert verdicts[1.25]["kept_up"] < 4
    assert verdicts[1.25]["overloaded"] > 0
