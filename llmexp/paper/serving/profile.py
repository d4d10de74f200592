"""The paper's tables X and XI, where a step of a served model goes, with our profiled runs beside its figures.

The paper prints one step, of 51.11 ms. That attention by Triton takes more of it than products of matrices, at 1024
requests, says that it is one of decode, which is what stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from llmexp.paper.printed import SOURCE, read_table, remark_of
from llmexp.record import ranges
from llmexp.record.breakdown import Breakdown, BreakdownShare, ModuleTime
from llmexp.record.digits import three_digits
from llmexp.report.columns import Column, ReportTable
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.report.profiled import ProfiledRun

SWEEP = "paper_serving_profile"
"""The sweep of both experiments: its runs stand beside the paper's wherever they ran."""
TABLE_X, TABLE_XI = "X", "XI"
# Section VI-B of the paper; over how many GPUs it does not say, but tables X and XI have all-reduces.
ENGINE, MODEL, HARDWARE, BATCH, PROMPT, OUTPUT = "lightllm", "7b", "a800", 1024, 512, 64
# Kinds of work by the paper's words for kernels; LightLLM's attention is what it has written in Triton.
_KINDS = {
    "GEMM": "GeMM",
    "attention": "Triton",
    "softmax": "Triton",
    "elementwise": "Element-Wise",
    "normalisation": "RMSNorm",
}
_MODULES = {ranges.ROPE: "RoPE", ranges.NORM: "RMSNorm"}
_AFTER = (ranges.LM_HEAD, ranges.SAMPLING, ranges.NORM)
ATTENTION, FFN = "32 x Attention", "32 x FFN"
_REST_OF_LAYER, _OUTSIDE = "rest of the layers", "outside modules"
_COMMUNICATION, _IDLE = "communication", "idle, copies"
OURS_ALONE = (_REST_OF_LAYER, _OUTSIDE, _COMMUNICATION, _IDLE)
Labels = tuple[str, ...]


@dataclass(frozen=True)
class _Table:
    number: str
    title: str
    headings: Labels
    papers: Mapping[Labels, tuple[float, float, str]]
    measure: Callable[[Breakdown, BreakdownShare], dict[Labels, float]]


def paper_profile_tables(runs: Sequence[ProfiledRun]) -> list[tuple[str, ReportTable]]:
    """Return the tables, by Roman numbers, for runs of the paper's experiments and runs that are the paper's own."""
    shown = [run for run in runs if run.profiled and (_sweep(run) == SWEEP or not differences(run))]
    return [(table.number, found) for table in _tables() if (found := _beside(table, shown))] if shown else []


def differences(run: ProfiledRun) -> list[str]:
    """Return in what a run differs from the paper's."""
    plan = run.row.plan
    assert isinstance(plan, ServingPlan)
    config, point = plan.config, plan.points[-1]
    checks = {
        f"model {config.model.name} for {MODEL}": config.model.name != MODEL,
        f"engine {config.engine.name} for {ENGINE}": config.engine.name != ENGINE,
        f"{run.row.hardware} for {HARDWARE}": run.row.hardware != HARDWARE,
        "one device for several": plan.devices == 1,
        f"{point.at_work} requests at a time for {BATCH}": point.at_work != BATCH,
        f"prompts of {config.serve.prompt} for {PROMPT}": str(config.serve.prompt) != f"{PROMPT} tokens",
        f"outputs of {config.serve.output} for {OUTPUT}": str(config.serve.output) != f"{OUTPUT} tokens",
    }
    return [words for words, differs in checks.items() if differs]


def kernels_ms(rank: Breakdown, phase: BreakdownShare) -> dict[Labels, float]:
    """Return the milliseconds of a phase in the words of table X; those of communication that nothing hides."""
    found: dict[Labels, float] = {}
    for module in _of(rank, phase):
        part = next((_MODULES[name] for name in reversed(module.path) if name in _MODULES), None)
        for kind, time_ns in module.kinds.items():
            name = "GeMM" if kind == "GEMM" else part or _KINDS.get(kind, "Other")
            _add(found, ("computation", name), time_ns)
    _add(found, ("computation", "total"), phase.compute_ns)
    for name, time_ns in phase.collectives.items():
        _add(found, ("communication", name if name in (ranges.ALL_REDUCE, ranges.ALL_GATHER) else "Other"), time_ns)
    _add(found, ("communication", "total"), phase.communication_ns)
    _add(found, ("other", "Other"), phase.idle_ns + phase.copy_ns)
    return found


def stages_ms(rank: Breakdown, phase: BreakdownShare) -> dict[Labels, float]:
    """Return the milliseconds of a phase in the words of table XI; none where the trace has no modules."""
    found: dict[Labels, float] = {}
    modules = _of(rank, phase)
    if not any(ranges.LAYER in module.path for module in modules):
        return found
    for module in modules:
        for labels in _stages(module.path):
            _add(found, labels, module.exclusive_ns)
    _add(found, ("", _COMMUNICATION), phase.communication_ns)
    _add(found, ("", _IDLE), phase.idle_ns + phase.copy_ns)
    return found


def _stages(path: Sequence[str]) -> list[Labels]:
    whole = ("transformer", "total")
    if ranges.ATTENTION in path:
        return [whole, ("transformer", ATTENTION)]
    if {ranges.MLP, ranges.EXPERTS} & {*path}:
        return [whole, ("transformer", FFN)]
    if ranges.LAYER in path:
        return [whole, ("", _REST_OF_LAYER)]
    if ranges.EMBEDDING in path:
        return [("before_transformer", "all")]
    return [("after_transformer", "all")] if {*_AFTER} & {*path} else [("", _OUTSIDE)]


def _of(rank: Breakdown, phase: BreakdownShare) -> list[ModuleTime]:
    return [module for module in rank.modules if module.phase == phase.phase]


def _add(found: dict[Labels, float], labels: Labels, time_ns: int) -> None:
    if time_ns:
        found[labels] = found.get(labels, 0.0) + time_ns / 1e6


def _tables() -> list[_Table]:
    kernels: dict[Labels, tuple[float, float, str]] = {
        (row["group"], row["task"]): (float(row["time_ms"]), float(row["share_percent"]), remark_of(row["note"]))
        for row in read_table("table10_lightllm_module_time")
    }
    stages: dict[Labels, tuple[float, float, str]] = {
        (row["stage"], row["part"]): (float(row["time_ms"]), float(row["share_percent"]), remark_of(row["note"]))
        for row in read_table("table11_lightllm_timeline")
    }
    return [
        _Table(TABLE_X, "a step of serving by kernels", ("group", "task"), kernels, kernels_ms),
        _Table(TABLE_XI, "a step of serving by stages", ("stage", "part"), stages, stages_ms),
    ]


def _beside(table: _Table, runs: Sequence[ProfiledRun]) -> ReportTable | None:
    found = [_mean(table, run) for run in runs]
    if not any(found):
        return None
    own = [("", name) for name in OURS_ALONE if any(("", name) in times for times in found)]
    lines = [*table.papers, *own]
    columns = [
        Column(heading, tuple(labels[place] for labels in lines), left=True)
        for place, heading in enumerate(table.headings)
    ]
    for run, times in zip(runs, found, strict=True):
        columns.append(Column(f"{run.name} ms (%)", tuple(_cell(times, labels) for labels in lines)))
    papers = [table.papers.get(labels) for labels in lines]
    # The times of another machine or model say nothing about ours.
    if not all(map(differences, runs)):
        columns.append(Column("paper ms", tuple(f"{one[0]:.2f}" if one else "" for one in papers)))
    columns.append(Column("paper %", tuple(f"{one[1]:.2f}" + "*" * bool(one[2]) if one else "" for one in papers)))
    remarks = [f"* {one[2]}" for one in papers if one and one[2]]
    return ReportTable(
        f"table {table.number} of the paper, {table.title}", columns, [*_compared(runs), *_WORDS, *remarks]
    )


_WORDS = (
    f"paper: {SOURCE}, one step, read as one of decode; ours: a step of decode, as a mean over those profiled, and "
    "percent of it; it has nothing where no step was of decode alone",
    "Triton: the kernels of attention, whatever they are written in; Other beyond computation and communication: idle "
    "time and copies",
)


def _mean(table: _Table, run: ProfiledRun) -> dict[Labels, float]:
    """Return the milliseconds of a step of decode with their whole under no labels, as means over ranks."""
    assert run.breakdown
    phases = [(rank, each) for rank in run.breakdown.ranks for each in rank.phases if each.phase == ranges.DECODE]
    each_ms = [
        {labels: time / phase.steps for labels, time in table.measure(rank, phase).items()}
        | {(): phase.time_ns / phase.steps / 1e6}
        for rank, phase in phases
        if phase.steps and table.measure(rank, phase)
    ]
    names = dict.fromkeys(labels for times in each_ms for labels in times)
    return {labels: fmean(times.get(labels, 0.0) for times in each_ms) for labels in names}


def _cell(times: Mapping[Labels, float], labels: Labels) -> str:
    if labels not in times:
        return ""
    return f"{three_digits(times[labels], ',.2f')} ({100 * times[labels] / times[()]:.1f})"


def _compared(runs: Sequence[ProfiledRun]) -> list[str]:
    return [
        f"{run.name} is NOT the paper's run ({', '.join(found)}): shares stand side by side for their pattern"
        for run in runs
        if (found := differences(run))
    ]


def _sweep(run: ProfiledRun) -> str | None:
    return run.row.plan.config.sweep.name
