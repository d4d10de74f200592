"""Profiled runs in a report: their steps, the paper's tables X and XI beside them, and why a profile is missing."""

from __future__ import annotations

from pathlib import Path

from served_requests import answer, served_row, serving_plan

from llmexp.paper.reference import PAPER
from llmexp.record.breakdown import Breakdown, BreakdownShare, ModuleTime, RunBreakdown
from llmexp.record.ranges import ATTENTION, CORE, DECODE, EMBEDDING, GATE, LAYER, LM_HEAD, MLP, NORM, PREFILL, ROPE
from llmexp.report.columns import ReportTable
from llmexp.report.row import Row
from llmexp.serving.record.profiled_load import ProfiledLoad, profiled_load_path
from llmexp.serving.report.section import ServingSection

PAPERS_LOAD = ("experiment=paper_table10", "engine=transformers", "~engine.options.max_sequences", "model=tiny")


def share(phase: str, steps: int, compute_us: int, idle_us: int, **collectives_us: int) -> BreakdownShare:
    told = {name: 1000 * us for name, us in collectives_us.items()}
    exposed_ns = sum(told.values())
    return BreakdownShare(
        phase=phase,
        steps=steps,
        time_ns=1000 * (compute_us + idle_us) + exposed_ns,
        compute_ns=1000 * compute_us,
        communication_ns=exposed_ns,
        copy_ns=0,
        idle_ns=1000 * idle_us,
        gemm_ns=0,
        collectives=told,
    )


def module(phase: str, path: tuple[str, ...], **kinds_us: int) -> ModuleTime:
    kinds = {name: 1000 * us for name, us in kinds_us.items()}
    whole = sum(kinds.values())
    return ModuleTime(
        phase=phase, path=path, recomputed=False, exclusive_ns=whole, work_ns=whole, gemm_ns=0, pieces=1, kinds=kinds
    )


# Ten steps of decode of 100 us each: 60 of computation, 20 of communication, 20 idle.
PHASES = [
    share("", 0, 0, 500),
    share(PREFILL, 1, 400, 0),
    share(DECODE, 10, 600, 200, AllReduce=150, AllGather=50),
]
MODULES = [
    module(PREFILL, (LAYER, MLP, GATE), GEMM=400),
    module(DECODE, (EMBEDDING,), embedding=20),
    module(DECODE, (LAYER, NORM), reduction=10, elementwise=20),
    module(DECODE, (LAYER, ATTENTION, ROPE), elementwise=30),
    module(DECODE, (LAYER, ATTENTION, CORE), attention=200, elementwise=10),
    module(DECODE, (LAYER, MLP, GATE), GEMM=250),
    module(DECODE, (NORM,), reduction=20),
    module(DECODE, (LM_HEAD,), GEMM=30),
    module(DECODE, (), other=10),
]


def breakdown() -> RunBreakdown:
    whole = {
        name: sum(getattr(each, name) for each in PHASES)
        for name in ("time_ns", "compute_ns", "communication_ns", "idle_ns")
    }
    rank = Breakdown(
        source="rank0.0.json.gz",
        on_device=True,
        steps=11,
        window_ns=whole["time_ns"],
        compute_ns=whole["compute_ns"],
        exposed_communication_ns=whole["communication_ns"],
        exposed_copy_ns=0,
        idle_ns=whole["idle_ns"],
        idle_late_ns=whole["idle_ns"],
        idle_queued_ns=0,
        idle_unexplained_ns=0,
        communication_ns=whole["communication_ns"],
        copy_ns=0,
        phases=PHASES,
        modules=MODULES,
        kernels=[],
    )
    return RunBreakdown(repeat=0, ranks=[rank])


def profiled_row(folder: Path, *words: str, problem: str = "", traced: bool = True) -> Row:
    row = served_row(folder, serving_plan(*words), *(answer(index) for index in range(2)))
    repeat = row.folder.path / "repeat.0"
    repeat.mkdir(parents=True, exist_ok=True)
    load = ProfiledLoad(load="max", requests=2, windows_s=[0.5, 1.25], output_tokens_per_s=2.0, problem=problem)
    profiled_load_path(repeat).write_text(load.model_dump_json())
    if traced:
        row.folder.breakdown_path.write_text(breakdown().model_dump_json())
    return row


def lines(table: ReportTable) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The cells of a table by its first two."""
    rows = zip(*(column.cells for column in table.columns), strict=True)
    return {row[:2]: row[2:] for row in rows}


def named(section: ServingSection, title: str) -> ReportTable:
    return next(table for table in section.tables if table.title.startswith(title))


def test_parts_are_those_of_one_step_of_their_phase(tmp_path: Path) -> None:
    section = ServingSection((profiled_row(tmp_path, "serve.rate=max", "serve.requests=2"),))
    table = named(section, "where the time of a profiled server's steps went")
    cells = list(zip(*(column.cells for column in table.columns), strict=True))
    assert cells[:3] == [("prefill", "steps", "1"), ("", "one step", "0.40"), ("", "Gate", "0.40 (100.0%)")]
    decode = {part: cell for _, part, cell in cells[3:]}
    assert decode["steps"] == "10"
    assert decode["one step"] == "0.10"
    assert decode["Core attention"] == "0.02 (21.0%)"
    assert decode["exposed communication"] == "0.02 (20.0%)"
    assert decode["idle"] == "0.02 (20.0%)"
    assert "between steps, of the profiled time: transformers 26%" in table.legend
    told = "transformers was profiled at max for 0.500 s and 1.25 s, where it gave 2.00 output tokens/s"
    assert any(line.startswith(told) for line in table.legend)
    assert not [each for each in section.tables if "of the paper" in each.title]
    assert (tmp_path / "report_modules.png") in section.draw_more(tmp_path / "report.png")


def test_a_trace_without_modules_says_how_they_are_seen(tmp_path: Path) -> None:
    row = profiled_row(tmp_path, "serve.rate=max", "serve.requests=2")
    assert not [line for line in named(ServingSection((row,)), "where").legend if "no modules" in line]
    (rank,) = breakdown().ranks
    merged = [module(DECODE, (), other=1)]
    bare = breakdown().model_copy(update={"ranks": [rank.model_copy(update={"modules": merged})]})
    row.folder.breakdown_path.write_text(bare.model_dump_json())
    (told,) = [line for line in named(ServingSection((row,)), "where").legend if "no modules" in line]
    assert told.endswith("+engine.options.compile=false shows them")


def test_steps_of_decode_stand_beside_tables_x_and_xi(tmp_path: Path) -> None:
    section = ServingSection((profiled_row(tmp_path, *PAPERS_LOAD),))
    kernels, stages = named(section, "table X of the paper"), named(section, "table XI of the paper")
    assert [view.name for view in PAPER.beside(section).views()][:2] == ["table10", "table11"]
    assert lines(kernels) == {
        ("computation", "total"): ("0.06 (60.0)", "70.44"),
        ("computation", "Element-Wise"): ("0.00100 (1.0)", "3.30"),
        ("computation", "RoPE"): ("0.00300 (3.0)", "0.37"),
        ("computation", "Triton"): ("0.02 (20.0)", "45.10"),
        ("computation", "GeMM"): ("0.03 (28.0)", "18.40"),
        ("computation", "RMSNorm"): ("0.01 (5.0)", "2.31"),
        ("computation", "Other"): ("0.00300 (3.0)", "0.96"),
        ("communication", "total"): ("0.02 (20.0)", "22.11"),
        ("communication", "AllReduce"): ("0.01 (15.0)", "21.01"),
        ("communication", "AllGather"): ("0.01 (5.0)", "0.90"),
        ("communication", "Other"): ("", "0.20"),
        ("other", "Other"): ("0.02 (20.0)", "7.55*"),
    }
    assert lines(stages) == {
        ("before_transformer", "all"): ("0.00200 (2.0)", "3.25"),
        ("transformer", "total"): ("0.05 (52.0)", "93.13"),
        ("transformer", "32 x Attention"): ("0.02 (24.0)", "68.73"),
        ("transformer", "32 x FFN"): ("0.03 (25.0)", "24.40"),
        ("after_transformer", "all"): ("0.01 (5.0)", "3.62"),
        ("", "rest of the layers"): ("0.00300 (3.0)", ""),
        ("", "outside modules"): ("0.00100 (1.0)", ""),
        ("", "communication"): ("0.02 (20.0)", ""),
        ("", "idle, copies"): ("0.02 (20.0)", ""),
    }
    told = next(line for line in kernels.legend if "NOT the paper's run" in line)
    assert "model tiny for 7b, engine transformers for lightllm, cpu for a800, one device for several" in told
    assert "prompts of" not in told


def test_a_profile_that_failed_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    words = ("serve.rate=max", "serve.requests=2")
    section = ServingSection((profiled_row(tmp_path, *words, problem="the server hung", traced=False),))
    assert [table.title for table in section.tables] == ["load points"]
    assert "transformers was not profiled wholly: the server hung" in section.legend
    row = section.rows[0]
    row.folder.breakdown_path.write_text("{")
    profiled_load_path(row.folder.path / "repeat.0").write_text("{")
    assert [table.title for table in ServingSection((row,)).tables] == ["load points"]
