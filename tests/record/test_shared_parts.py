import json
from typing import Any

import pytest

from llmexp.errors import RecordError
from llmexp.record.plan import RunPlan
from llmexp.record.shared_parts import MOST_KEPT, SharedParts


@pytest.fixture
def parts() -> SharedParts:
    return SharedParts()


def test_a_record_reads_the_same_with_and_without_what_was_read_before(make_run, parts):
    for folder in (make_run("F"), make_run("Z3"), make_run("F", batch__micro=4)):
        for _ in range(2):
            assert RunPlan.read(folder.plan_path, parts) == RunPlan.read(folder.plan_path)
            assert folder.result(parts) == folder.result()


def test_what_two_runs_have_in_common_is_one_object(make_run, parts):
    one, other = (RunPlan.read(make_run("F", batch__micro=micro).plan_path, parts) for micro in (1, 4))
    assert one.config.model is other.config.model
    assert one.config.measure is other.config.measure
    assert (one.config.batch.micro, other.config.batch.micro) == (1, 4)


def test_environments_share_what_is_equal_in_them(make_run, parts):
    found = []
    for load in (1.0, 2.0):
        folder = make_run(f"{'F+' * (load > 1)}R")
        environment = {"distributions": {"torch": "2.6"}, "load_average": load}
        folder.write(folder.result_path, folder.result().model_copy(update={"environment": environment}))
        found.append(folder.result(parts).environment)
    assert found[0]["distributions"] is found[1]["distributions"]
    assert [each["load_average"] for each in found] == [1.0, 2.0]


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), ("1", 1), (0.0, -0.0), ([], {})])
def test_what_is_nearly_equal_stays_what_it_is(parts, one: Any, other: Any):
    read = [parts.one("sizes", {"size": value})["size"] for value in (one, other)]
    assert repr(read) == repr([one, other])


def test_only_so_many_parts_of_one_name_are_kept(parts):
    first = parts.one("sizes", {"size": 0})
    assert parts.one("sizes", {"size": 0}) is first
    for size in range(1, MOST_KEPT + 1):
        parts.one("sizes", {"size": size})
    assert parts.one("sizes", {"size": 0}) == first
    assert parts.one("sizes", {"size": 0}) is not first


def damaged(text: str) -> list[str]:
    plan = json.loads(text)
    del plan["id"]
    wrong = json.loads(text)
    wrong["config"]["model"]["hidden_size"] = "wide"
    unknown = json.loads(text)
    unknown["config"]["task"]["name"] = "dream"
    return [
        *map(json.dumps, (plan, wrong, unknown, [], {"config": 1})),
        text[:-20],
        "",
        "{" * 100_000,
        '{"config": "\\ud8"}',
    ]


def test_what_is_wrong_is_said_as_without_it(make_run, parts):
    folder = make_run("F")
    RunPlan.read(folder.plan_path, parts)
    for text in damaged(folder.plan_path.read_text()):
        folder.plan_path.write_text(text)
        with pytest.raises(RecordError) as alone:
            RunPlan.read(folder.plan_path)
        with pytest.raises(RecordError) as beside:
            RunPlan.read(folder.plan_path, parts)
        assert (type(beside.value), str(beside.value)) == (type(alone.value), str(alone.value))


def test_a_part_that_is_wrong_is_not_kept(make_run, parts):
    folder = make_run("F")
    sound = folder.plan_path.read_text()
    for _ in range(2):
        folder.plan_path.write_text(sound.replace('"dp":', '"db":'))
        with pytest.raises(RecordError, match="dp"):
            RunPlan.read(folder.plan_path, parts)
    folder.plan_path.write_text(sound)
    assert RunPlan.read(folder.plan_path, parts) == RunPlan.read(folder.plan_path)
