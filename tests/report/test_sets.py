import io
import json

import pytest

from llmexp.errors import ConfigError
from llmexp.record.result import Metric, Stability
from llmexp.report.baseline import load, measured, save
from llmexp.report.row import read_row
from llmexp.report.sets import compare_sets
from llmexp.report.sets_terminal import print_sets
from llmexp.training.trained_run import TrainedRun

UNSTABLE = Stability(verdict="unstable", reasons=["contention: other processes took 1.00 of 2 cores"])


def tokens(mean, share=0.002, n=5):
    return {"tokens_per_s": Metric(mean=mean, std_between_repeats=share * mean if n > 1 else None, n=n)}


@pytest.fixture
def row(make_run):
    """A run of a set, as what it contributes to a comparison."""
    count = iter(range(1000))

    def make(method="Naive", mean=100.0, n=5, **changes):
        changes = {"metrics": tokens(mean, n=n), "sweep__name": f"set{next(count)}"} | changes
        return measured(read_row(make_run(method, **changes)))

    return make


def outcomes(found):
    return {row.name.removeprefix("tiny "): row.outcome for row in found.rows}


def printed(found):
    file = io.StringIO()
    print_sets(found, file)
    return " ".join(file.getvalue().split())


def test_each_row_has_its_own_answer(row):
    a = [row("Naive", 100), row("R", 100), row("F", 100), row("Z2", 100, n=1)]
    b = [row("Naive", 95), row("R", 100.1), row("F", 105), row("Z2", 50, n=1)]
    found = compare_sets(a, b)
    assert outcomes(found) == {"Naive": "worse", "R": "within", "F": "better", "Z2": "unknown"}
    assert found.failed
    text = printed(found)
    for said in ("slower", "faster", "within noise", "cannot tell", "set measure.repeats=3 or more for both"):
        assert said in text
    assert text.endswith("4 rows in both: 1 slower, 1 within noise, 1 faster, 1 cannot tell")


def test_what_one_setting_makes_of_the_whole_set_is_named_and_does_not_part_the_rows(row):
    a = [row(method, 100, batch={"micro": 2, "accumulation": 1}) for method in ("Naive", "R")]
    b = [row(method, 90, batch={"micro": 1, "accumulation": 2}) for method in ("Naive", "R")]
    found = compare_sets(a, b)
    assert {one.key: (one.a, one.b) for one in found.settings} == {
        "batch.micro": ("2", "1"),
        "batch.accumulation": ("1", "2"),
    }
    assert outcomes(found) == {"Naive": "worse", "R": "worse"}
    assert "differs in settings: batch.micro 2 → 1, batch.accumulation 1 → 2" in printed(found)


def test_versions_that_differ_are_named(row):
    a, b = row(), row()
    newer = b.model_copy(update={"environment": b.environment | {"distributions.torch": "9.9"}})
    older = a.model_copy(update={"environment": a.environment | {"distributions.torch": "8.8"}})
    assert "distributions.torch 8.8 → 9.9" in printed(compare_sets([older], [newer]))


def did(losses=(6.2, 5.9), update=1e-4, sequences=("a0", "a1"), **changes) -> TrainedRun:
    known = {"requested": {"optimizer.lr": "0.1"}, "parameters_in": "fp32", "products_in": "fp32", "gradient_norm": 3.0}
    return TrainedRun(losses=losses, largest_update=update, sequences=sequences, **known | changes)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"losses": (6.2, 6.2), "update": 0.0}, "the losses of the first steps are up to 5.08% apart"),
        ({"update": 0.0}, "the first step changes a parameter by 0.0001 and 0 at most"),
        ({"sequences": ("a1", "a0")}, "step 0 read other sequences"),
        ({"products_in": "bf16"}, "matrix products ran in fp32 and bf16"),
        ({"gradient_norm": 6.0}, "the first step's gradients have norms of 3 and 6"),
    ],
)
def test_a_faster_row_that_did_another_training_is_not_compared_and_fails(row, broken, why):
    a, b = row(mean=100), row(mean=200)
    found = compare_sets([a.model_copy(update={"trained": did()})], [b.model_copy(update={"trained": did(**broken)})])
    assert outcomes(found) == {"Naive": "another training"}
    assert found.rows[0].reason == f"not the same training, so not compared: {why}"
    assert found.failed
    assert "1 another training" in printed(found)


def test_what_a_training_was_asked_is_read_by_the_name_that_it_had_before():
    known = {"asked": {"optimizer.lr": "0.1"}, "parameters_in": "fp32", "losses": []}
    assert TrainedRun.model_validate(known).requested == {"optimizer.lr": "0.1"}


def test_a_row_that_was_asked_to_learn_otherwise_is_compared(row):
    a, b = row(mean=100), row(mean=200)
    other = did(losses=(6.2, 6.2), update=0.0, requested={"optimizer.lr": "0.0"})
    found = compare_sets([a.model_copy(update={"trained": did()})], [b.model_copy(update={"trained": other})])
    assert outcomes(found) == {"Naive": "better"}


def test_a_baseline_with_a_training_of_a_task_that_trains_nothing_is_damaged(row, tmp_path):
    known = row(mean=100).model_copy(update={"trained": did()})
    path = tmp_path / "baseline.json"
    save(path, [known.model_copy(update={"settings": known.settings | {"task.name": "serve"}})])
    with pytest.raises(ConfigError, match=r"is damaged: rows.0.trained: .*its task trains nothing"):
        load(path)


def test_an_old_baseline_cannot_tell_whether_the_training_is_the_same(row, tmp_path):
    old, new = row(mean=100), row(mean=200).model_copy(update={"trained": did()})
    save(tmp_path / "baseline.json", [old])
    content = json.loads((tmp_path / "baseline.json").read_text()) | {"schema": 1}
    for one in content["rows"]:
        del one["trained"]
    (tmp_path / "baseline.json").write_text(json.dumps(content))
    found = compare_sets(load(tmp_path / "baseline.json"), [new])
    assert outcomes(found) == {"Naive": "better"}
    assert not found.failed
    assert not found.is_complete
    assert "cannot tell whether the same training: one run recorded nothing of its training (tiny Naive)" in printed(
        found
    )


def test_a_baseline_keeps_what_the_training_did(row, tmp_path):
    known = row(mean=100).model_copy(update={"trained": did()})
    save(tmp_path / "baseline.json", [known])
    found = compare_sets(load(tmp_path / "baseline.json"), [known.model_copy(update={"trained": did(update=0.0)})])
    assert outcomes(found) == {"Naive": "another training"}


def test_other_work_is_not_compared(row):
    found = compare_sets([row(mean=100)], [row(mean=50, batch={"micro": 2, "accumulation": 1})])
    assert [one.outcome for one in found.rows] == ["not compared"]
    assert not found.failed
    assert not found.is_complete
    assert "not the same work: global batch" in found.rows[0].reason


def test_what_is_no_longer_measured_fails(row):
    found = compare_sets([row()], [row(status="failed", reason="a rank died")])
    assert outcomes(found) == {"Naive": "lost"}
    assert found.failed
    assert found.rows[0].reason == "measured before, now failed: a rank died"


def test_what_was_measured_in_neither_is_no_failure(row):
    assert not compare_sets([row(status="oom")], [row(status="oom")]).failed


def test_rows_without_a_partner_are_listed(row):
    found = compare_sets([row("Naive"), row("R")], [row("Naive"), row("F")])
    assert (found.only_a, found.only_b) == (("tiny R",), ("tiny F",))
    assert not found.failed
    assert not found.is_complete


def test_a_disturbed_measurement_is_never_slower_and_may_be_within_noise(row):
    slower = compare_sets([row(mean=100)], [row(mean=50, stability=UNSTABLE)])
    assert outcomes(slower) == {"Naive": "unknown"}
    assert slower.rows[0].reason == f"the second measurement is unstable ({UNSTABLE.reasons[0].words})"
    assert outcomes(compare_sets([row(mean=100)], [row(mean=100, stability=UNSTABLE)])) == {"Naive": "within"}


def test_sets_with_nothing_in_common_are_bad_input(row):
    with pytest.raises(ConfigError, match="no row in common: method is Naive, R in the first and F, Z2 in the other"):
        compare_sets([row("Naive"), row("R")], [row("F"), row("Z2")])


def test_more_of_a_metric_of_which_less_is_better_is_worse(row):
    peaks = [Metric(mean=mean, std_between_repeats=0.0, n=3) for mean in (10, 20)]
    sides = [row(metrics={"peak_allocated_bytes": peak}, stability=UNSTABLE) for peak in peaks]
    found = compare_sets([sides[0]], [sides[1]], "peak_allocated_bytes")
    assert outcomes(found) == {"Naive": "worse"}
    assert "1 worse" in printed(found)
    assert outcomes(compare_sets([sides[1]], [sides[0]], "peak_allocated_bytes")) == {"Naive": "better"}


def test_an_unknown_metric_is_refused_with_the_choices(row):
    with pytest.raises(ConfigError, match="did you mean tokens_per_s"):
        compare_sets([row()], [row()], "token_per_s")


def test_the_last_of_several_runs_of_a_row_counts(row):
    old, new = (row(mean=mean).model_copy(update={"ended_at": at}) for mean, at in ((50, "2026-01"), (100, "2026-02")))
    found = compare_sets([new, old], [row(mean=100)])
    assert outcomes(found) == {"Naive": "within"}
    assert found.repeated == 1


def test_pooled_the_repeats_of_all_runs_of_a_row_count(row):
    first = [row(mean=mean, n=1) for mean in (99.9, 100.0, 100.1)]
    second = [row(mean=mean, n=1) for mean in (89.9, 90.0, 90.1)]
    assert outcomes(compare_sets(first, second)) == {"Naive": "unknown"}
    found = compare_sets(first, second, pooled=True)
    assert outcomes(found) == {"Naive": "worse"}
    assert found.rows[0].a.metrics["tokens_per_s"].n == 3
    assert "4 more measure the same as another run of their set: the repeats of all count" in printed(found)


def test_a_baseline_gives_the_same_answers_as_the_runs(row, tmp_path):
    a, b = [row("Naive"), row("R")], [row("Naive", 95), row("R", 100)]
    save(tmp_path / "baseline.json", a)
    assert load(tmp_path / "baseline.json") == a
    assert outcomes(compare_sets(load(tmp_path / "baseline.json"), b)) == outcomes(compare_sets(a, b))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a baseline, or is damaged"),
        ("[]", "its kind is not 'llmexp baseline'"),
        ('{"kind": "llmexp baseline", "schema": 9, "written_by": "9.0"}', "has the schema 9, .* llmexp 9.0 wrote it"),
        ('{"kind": "llmexp baseline", "schema": 1, "rows": [{}]}', "is damaged: rows.0.settings: Field required"),
    ],
)
def test_a_damaged_or_newer_baseline_is_one_line(text, said, tmp_path):
    (tmp_path / "baseline.json").write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        load(tmp_path / "baseline.json")
    assert "\n" not in str(caught.value)
