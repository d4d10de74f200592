"""The client's own share: measured on an instant server, and known to be missing where that cannot be."""

from __future__ import annotations

import pytest
from served_requests import serving_plan

from llmexp.errors import ServerError
from llmexp.launchers.serving import client_overhead as module
from llmexp.launchers.serving import worker
from llmexp.launchers.serving.client_overhead import client_overheads
from llmexp.launchers.serving.prompting.source import PromptSource

PLAN = serving_plan("model=tiny", "serve.rate=max", "serve.requests=4", "serve.warmup_requests=1")


def test_each_load_is_measured_on_a_server_that_answers_at_once() -> None:
    (found,) = client_overheads(PLAN)
    assert (found.point, found.requests) == (0, 4)
    assert 0 < found.ttft_p50_s < found.end_to_end_p50_s


@pytest.mark.parametrize("program", ["llmexp.errors", "llmexp.no_such_module"])
def test_a_run_stands_without_it_where_the_instant_server_does_not_start(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(module, "INSTANT_SERVER", program)
    with pytest.raises(ServerError, match="did not start"):
        client_overheads(PLAN)
    assert worker._floors(PLAN, [], PromptSource()) == ([], f"{module.INSTANT} did not start")
