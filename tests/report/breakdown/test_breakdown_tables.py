"""Tables of where the time went: their parts add up, and what is small is together."""

from __future__ import annotations

import pytest

from llmexp.errors import RecordError
from llmexp.record.breakdown import (
    Breakdown,
    BreakdownShare,
    CollectiveTime,
    KernelTime,
    ModuleTime,
    RunBreakdown,
    read_breakdown,
)
from llmexp.report.breakdown.difference import difference_table
from llmexp.report.breakdown.kernels import collectives_table
from llmexp.report.breakdown.modules import module_table
from llmexp.report.breakdown.parts import COMMUNICATION, IDLE, OTHERS, RECOMPUTED, TOTAL, Profiled, parts_ms, step_ms
from llmexp.report.table import build_report
from llmexp.report.text import markdown

MS = 1_000_000


def rank(scale: int = 1, **more: int) -> Breakdown:
    """Two steps of 100 ms: 40 of QKV, 1 of Up, 9 recomputed, 20 of communication, the rest idle."""
    whole = {"QKV": 80, "Up": 2} | more
    modules = [ModuleTime(phase="forward", path=("Attention", "QKV"), recomputed=False, **time(whole["QKV"] * scale))]
    modules += [ModuleTime(phase="forward", path=("MLP", "Up"), recomputed=False, **time(whole["Up"] * scale))]
    modules += [ModuleTime(phase="backward", path=("MLP", "Up"), recomputed=True, **time(18 * scale))]
    forward, idle = whole["QKV"] + whole["Up"], 200 - whole["QKV"] - whole["Up"] - 18 - 40
    phases = [share("forward", forward * scale, 0, 0), share("backward", 18 * scale, 40 * scale, idle * scale)]
    return Breakdown(
        source="rank0.json.gz",
        on_device=True,
        steps=2,
        window_ns=200 * MS * scale,
        compute_ns=(forward + 18) * MS * scale,
        exposed_communication_ns=40 * MS * scale,
        exposed_copy_ns=0,
        idle_ns=idle * MS * scale,
        idle_late_ns=0,
        idle_queued_ns=0,
        idle_unexplained_ns=idle * MS * scale,
        communication_ns=50 * MS * scale,
        copy_ns=0,
        phases=phases,
        modules=modules,
        kernels=[KernelTime(name="gemm", kind="GEMM", calls=4, work_ns=forward * MS * scale)],
    )


def time(ms: int) -> dict[str, int]:
    return {"exclusive_ns": ms * MS, "work_ns": ms * MS, "gemm_ns": 0, "pieces": 1}


def share(phase: str, compute: int, communication: int, idle: int) -> BreakdownShare:
    return BreakdownShare(
        phase=phase,
        time_ns=(compute + communication + idle) * MS,
        compute_ns=compute * MS,
        communication_ns=communication * MS,
        copy_ns=0,
        idle_ns=idle * MS,
        gemm_ns=0,
    )


def run(name: str = "a", *ranks: Breakdown, measured_s: float | None = None) -> Profiled:
    return Profiled(name, RunBreakdown(repeat=0, ranks=list(ranks) or [rank()]), measured_s)


def cells(run_: Profiled, **options: bool) -> dict[tuple[str, str], str]:
    phase, part, ms = module_table([run_], **options).columns
    found, last = {}, ""
    for one, name, cell in zip(phase.cells, part.cells, ms.cells, strict=True):
        last = one or last
        found[last, name] = cell
    return found


def test_the_parts_of_a_phase_add_up_to_it_and_phases_to_the_step() -> None:
    times = parts_ms(run("a", rank(), rank(scale=3)).breakdown)
    assert step_ms(run("a", rank(), rank(scale=3)).breakdown) == pytest.approx(200)
    for phase in ("forward", "backward"):
        whole = sum(ms for part, ms in times.items() if part[0] == phase and part[1] != TOTAL)
        assert whole == pytest.approx(times[phase, TOTAL])
    assert sum(ms for part, ms in times.items() if part[1] == TOTAL) == pytest.approx(200)


def test_small_modules_are_one_part_and_so_is_what_is_recomputed() -> None:
    whole = cells(run())
    assert whole["forward", "Up"] == "1.00 (1.0%)"
    assert whole["backward", "Up, recomputed"] == "9.00 (9.0%)"
    short = cells(run("a", rank(Up=1)), whole=False)
    assert short["forward", OTHERS] == "0.50 (0.5%)"
    assert short["backward", RECOMPUTED] == "9.00 (9.0%)"
    assert short["backward", COMMUNICATION] == "20.0 (20.0%)"
    assert ("forward", "Up") not in short
    assert next(iter(short)) == ("forward", TOTAL)


def test_a_profiled_step_stands_beside_the_measured_one() -> None:
    assert cells(run(measured_s=0.08))["step", "measured (profiled over it)"] == "80.0 (+25%)"
    assert cells(run())["step", "measured (profiled over it)"] == ""


def test_the_difference_of_two_is_that_of_its_parts() -> None:
    phase, what, a, b, delta, percent = (column.cells for column in difference_table(run(), run("b", rank(2))).columns)
    rows = {(one, name): rest for one, name, *rest in zip(phase, what, a, b, delta, percent, strict=True)}
    assert rows["forward", "QKV"] == ["40.0", "80.0", "+40.0", "40"]
    assert rows["backward", IDLE][2] == "+30.0"
    assert sum(float(row[2]) for row in rows.values()) == pytest.approx(100)
    assert sum(int(row[3]) for row in rows.values()) == 100


def test_collectives_have_their_waiting_apart() -> None:
    breakdown = run().breakdown.model_copy(
        update={"collectives": [CollectiveTime(name="all", calls=2, work_ns=3 * MS, pure_ns=MS, waited_ns=2 * MS)]}
    )
    waiting = collectives_table(Profiled("a", breakdown))
    assert waiting
    assert [column.cells[0] for column in waiting.columns] == ["all", "2", "3.00", "2.00", "1.00"]
    assert collectives_table(run()) is None


def test_a_run_with_a_breakdown_has_its_modules_below_the_table_and_a_damaged_one_costs_nothing(make_run) -> None:
    good, bad, traced_by_nobody = make_run("Naive", metrics={"tokens_per_s": 5.0}), make_run("F"), make_run("R")
    good.write(good.breakdown_path, run().breakdown)
    bad.breakdown_path.write_text('{"repeat": 0, "ranks": [{"window_ns": 0}]}')
    (section,) = build_report([good, bad, traced_by_nobody]).sections
    table, _ = section.tables
    assert [column.header for column in table.columns] == ["phase", "part", "Naive ms"]
    with pytest.raises(RecordError, match="is not a breakdown of this llmexp"):
        read_breakdown(bad)
    assert read_breakdown(traced_by_nobody) is None
    assert "| forward | whole phase | 41.0 (41.0%) |" in markdown(build_report([good]))
