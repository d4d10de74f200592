import random
from statistics import fmean, stdev

import pytest

from llmexp.paper.claims.claims import paper_claims
from llmexp.paper.claims.rows import paper_rows
from llmexp.paper.reference import PAPER
from llmexp.record.result import Metric
from llmexp.report.findings.claims import Claim, own_claims
from llmexp.report.findings.measured import rows_of_runs
from llmexp.report.findings.rows import ClaimRow
from llmexp.report.findings.run_figures import figure_of
from llmexp.report.findings.table import findings, findings_csv, findings_table
from llmexp.report.table import build_report

ON_A800 = {"model__name": "7b", "hardware__name": "a800", "hardware__memory_bytes": 85899345920}
CODES = ("F", "R", "Z2", "Z3", "O", "Q", "L", "QL")


def claim(name: str) -> Claim:
    return next(each for each in paper_claims() if each.id == name)


def speed(mean: float, memory_gb: float = 10.0, n: int = 5) -> dict[str, Metric]:
    rate = Metric(mean=mean, std_between_repeats=0.01 * mean if n > 1 else None, n=n)
    return {"tokens_per_s": rate, "peak_allocated_bytes": Metric(mean=memory_gb * 1e9, n=n)}


def rows(*folders) -> tuple[ClaimRow, ...]:
    return rows_of_runs(build_report(folders).rows)


def test_a_claim_is_decided_on_runs_by_the_function_that_decides_it_on_the_paper(make_run) -> None:
    naive, z2 = make_run("Naive", metrics=speed(1000, 60), **ON_A800), make_run("Z2", metrics=speed(800, 30), **ON_A800)
    found = rows(naive, z2)
    assert claim("S16").answer(found).verdict == "fails"
    assert claim("S15").answer(found).verdict == "partly"
    assert "0.8 (0.78 to 0.82)" in claim("S16").answer(found).numbers
    assert claim("H3").answer(found).verdict == "cannot tell"


def test_one_repeat_decides_nothing_about_speed(make_run) -> None:
    found = rows(
        make_run("Naive", metrics=speed(1000, n=1), **ON_A800), make_run("Z2", metrics=speed(500, n=1), **ON_A800)
    )
    answer = claim("S16").answer(found)
    assert (answer.verdict, answer.numbers) == ("cannot tell", "tokens_per_s ratio 0.5 (one repeat: no interval)")


def test_claims_about_a_class_of_hardware_are_not_decided_elsewhere(make_run) -> None:
    small = ON_A800 | {"hardware__name": "rtx4090", "hardware__memory_bytes": 25769803776}
    found = rows(make_run("Naive", metrics=speed(1000, 60), **small), make_run("Z2", metrics=speed(800, 30), **small))
    assert claim("S16").answer(found).verdict == "cannot tell"
    on_cpu = rows(make_run("Naive", metrics=speed(1000)), make_run("F", metrics=speed(2000)))
    assert claim("H6a").answer(on_cpu).verdict == "cannot tell"


def test_runs_that_differ_in_their_setting_are_not_compared(make_run) -> None:
    naive = make_run("Naive", metrics=speed(1000), **ON_A800)
    same = make_run("F", metrics=speed(2000), **ON_A800)
    other = make_run("F", metrics=speed(2000), data__seq_len=700, **ON_A800)
    assert claim("H6a").answer(rows(naive, same)).verdict == "holds"
    assert claim("H6a").answer(rows(naive, other)).verdict == "cannot tell"


def test_what_was_not_measured_counts_for_nothing(make_run) -> None:
    naive, fast = make_run("Naive", metrics=speed(1000), **ON_A800), make_run("F", metrics=speed(2000), **ON_A800)
    fast.result_path.write_text(fast.result_path.read_text().replace('"measured"', '"predicted"'))
    assert claim("H6a").answer(rows(naive, fast)).verdict == "cannot tell"


def test_the_largest_batch_is_that_of_runs_which_differ_in_it_alone(make_run) -> None:
    runs = [make_run("Naive", metrics=speed(1000 * micro), batch__micro=micro, **ON_A800) for micro in (1, 2, 4)]
    out = make_run("Naive", "oom", batch__micro=8, **ON_A800)
    largest = [row.micro for row in rows(*runs, out) if "largest" in row.batches]
    assert largest == [4]
    answer = claim("S27").answer(rows(*runs, out))
    assert (answer.verdict, "1 of 1 pairs" in answer.numbers) == ("holds", True)


def test_what_ran_out_of_memory_decides_claims_about_that(make_run) -> None:
    small = ON_A800 | {"hardware__name": "rtx4090", "hardware__memory_bytes": 25769803776}
    out = make_run("Naive", "oom", **small)
    assert claim("S13").answer(rows(out)).verdict == "holds"
    ran = make_run("R", metrics=speed(1), **small)
    assert claim("S13").answer(rows(out, ran)).verdict == "partly"


def test_several_gpus_scale_by_the_same_run_on_one(make_run) -> None:
    four = make_run("Q", metrics=speed(3900), parallelism__dp=4, **ON_A800)
    eight, one = (
        make_run("Q", metrics=speed(mean), parallelism__dp=gpus, **ON_A800) for mean, gpus in ((7900, 8), (1000, 1))
    )
    answer = claim("S05").answer(rows(one, four, eight))
    assert (answer.verdict, answer.numbers) == ("holds", "scaling ≥ 0.95 in 1 of 1: 0.9875")
    slower = make_run("Q", metrics=speed(6000), parallelism__dp=8, **ON_A800)
    assert claim("S05").answer(rows(one, slower)).verdict == "fails"
    assert claim("S05").answer(rows(eight)).verdict == "cannot tell"


def test_zero_on_few_gpus_may_run_out_of_memory(make_run) -> None:
    two, eight = (make_run("Z3", "oom", parallelism__dp=gpus, **ON_A800) for gpus in (2, 8))
    assert claim("H2b").answer(rows(two)).verdict == "holds"
    assert claim("H2b").answer(rows(eight)).verdict == "cannot tell"


def test_the_loss_at_the_end_tells_whether_q_learns_less(make_run) -> None:
    def ending(method: str, loss: float):
        told = Metric(mean=loss, std_between_repeats=0.01, n=3)
        return make_run(method, metrics=speed(1000) | {"smoothed_final_loss": told}, **ON_A800)

    naive, worse, same = ending("Naive", 3.0), ending("Q", 4.0), ending("F+Q", 3.0)
    assert claim("H5b").answer(rows(naive, worse)).verdict == "holds"
    assert claim("H5b").answer(rows(ending("F", 3.0), same)).verdict == "fails"


@pytest.mark.parametrize("pairs", [1, 4, 40])
def test_equal_speeds_are_seldom_told_apart(tmp_path, pairs) -> None:
    """With 5 repeats that deviate by 1 %, F as fast as X is called faster, or no faster, in at most 5 % of the sets."""
    [faster] = own_claims(_written(tmp_path), CODES, ())
    draw, wrong, tries = random.Random(7), 0, 400
    for _ in range(tries):
        found = [_run(draw, f"m{number}", method) for number in range(pairs) for method in ("", "F")]
        wrong += faster.answer(found).verdict != "cannot tell"
    assert wrong / tries <= 0.05


@pytest.mark.parametrize("others", [1, 10, 37])
def test_which_of_equals_is_best_is_seldom_told(tmp_path, others) -> None:
    (tmp_path / "claims.yaml").write_text(
        "{id: Q, statement: Q is fastest, shape: best, metric: tokens_per_s, winner: {with_any: Q}, holds: [1, 1]}"
    )
    [fastest] = own_claims(tmp_path / "claims.yaml", CODES, ())
    draw, told, tries = random.Random(5), 0, 400
    for _ in range(tries):
        found = [_run(draw, "m", method) for method in ("Q", *(f"X{number}" for number in range(others)))]
        told += fastest.answer(found).verdict != "cannot tell"
    assert told / tries <= 0.05


def test_a_real_gain_is_told(tmp_path) -> None:
    [faster] = own_claims(_written(tmp_path), CODES, ())
    draw = random.Random(3)
    sets = [[_run(draw, "m", ""), _run(draw, "m", "F", 1.05)] for _ in range(200)]
    assert sum(faster.answer(found).verdict == "holds" for found in sets) >= 190


def _written(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(
        "{id: F, statement: F is faster, shape: share, metric: tokens_per_s, compare: {add: F}, "
        "counts: [1.0001, null], holds: [0.9, 1], partly: [0.5, 1]}"
    )
    return path


def _run(draw: random.Random, model: str, method: str, gain: float = 1.0) -> ClaimRow:
    repeats = [draw.gauss(100 * gain, 1) for _ in range(5)]
    rate = Metric(mean=fmean(repeats), std_between_repeats=stdev(repeats), n=5)
    atoms = frozenset({method} - {""})
    return ClaimRow(
        "",
        f"{model} {method}",
        {"tokens_per_s": figure_of(rate)},
        model=model,
        method=atoms,
        batches=frozenset({"one"}),
    )


def test_both_columns_stand_in_the_table_and_in_csv(make_run) -> None:
    found = findings(paper_claims(), rows(make_run(metrics=speed(1000, 60), **ON_A800)), paper_rows())
    table = findings_table(found, PAPER)
    assert table.title == "112 claims; on the paper's cells: holds 48, partly 17, fails 15, cannot tell 32"
    assert [column.header for column in table.columns] == ["id", "claim", "yours", "paper", "numbers"]
    lines = findings_csv(found, PAPER).splitlines()
    assert len(lines) == 113
    assert lines[0] == "id,statement,yours,yours_numbers,yours_doubtful,paper,paper_numbers,paper_doubtful"
