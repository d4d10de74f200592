from __future__ import annotations

from llmexp.launch.early_end import ended_when
from llmexp.launch.run import run_one
from llmexp.record.result import RunStatus


def test_a_run_of_which_enough_was_seen_is_killed_with_the_reason_and_leaves_no_process(
    make_plan, folder, processes
) -> None:
    asked = []

    def enough(repeat) -> str | None:
        asked.append(repeat)
        return "pruned at step 3" if len(asked) == 2 else None

    with ended_when(enough):
        result = run_one(make_plan("hang"), folder)
    assert (result.status, result.reason) == (RunStatus.KILLED, "pruned at step 3")
    assert asked == [folder.repeat(0)] * 2
    assert (folder.state(), folder.events()[-1]["reason"]) == ("killed", "pruned at step 3")
    assert result.metrics == {}
    assert processes() == []


def test_runs_outside_of_the_block_are_left_alone(make_plan, folder) -> None:
    with ended_when(lambda _: "enough"):
        pass
    assert run_one(make_plan("well"), folder).status is RunStatus.SUCCESS
