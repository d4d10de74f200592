"""How often the plan's verdict on memory agrees with the paper's cells, whose truth is printed.

Tables III and IX say of batch 1 whether it fitted. Table IV gives the largest power of two that fitted, so that twice
as much did not, except in two kinds of cells: 64 on the A800 is the largest batch that the table has at all, and its
note says which cells only repeat table III.

The paper does not state its precision. Naive's 66.7 GB are 8 bytes a parameter, bf16 throughout. Of ZeRO the states
are taken in fp32, as DeepSpeed kept them when the paper was written; `zero_precision` takes them otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.figure import Figure
from benchmarks.rates import rate
from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.method import Method
from llmexp.paper.printed import read_table
from llmexp.record.memory import Fit
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan

TASKS = {"03_pretrain_bs1": "pretrain", "04_pretrain_max_batch": "pretrain", "09_finetune_bs1": "finetune"}
HARDWARE = ("a800", "rtx4090", "rtx3090", "rtx3090_nvlink")
SEARCHED = "04_pretrain_max_batch"
FITTED, OUT_OF_MEMORY, TWICE, UNSEARCHED = "fitted", "out of memory", "twice the largest", "not tried"
LARGEST_TRIED, REPEATED = ("a800", "64"), "doubt: same as Table III at batch 1"
AGREES = 90.0
Plans = dict[frozenset[str], TrainingPlan]


@dataclass(frozen=True)
class Check:
    """A batch of a cell, what the paper says of it, and the plan's estimate."""

    cell: str
    said: str
    fit: Fit

    @property
    def right(self) -> bool:
        """Tell whether the verdict agrees with the paper."""
        return (self.fit.verdict != "no") == (self.said == FITTED)


def memory_verdicts() -> Iterator[Figure]:
    """Yield the shares of verdicts that agree, by table and by what the paper says, and of errors by verdict."""
    tables = {table: list(checks(table)) for table in TASKS}
    for table, found in tables.items():
        searched = [check for check in found if check.said != UNSEARCHED]
        yield _agreeing(f"the plan's memory agrees with the paper: table{table}", searched, AGREES)
        yield from _by_saying(table, found)
    whole = [check for found in tables.values() for check in found if check.said != UNSEARCHED]
    for verdict in ("yes", "likely", "no"):
        given = [check for check in whole if check.fit.verdict == verdict]
        yield rate(f"wrong where the plan says {verdict}", sum(not check.right for check in given), len(given))
    pure = (check for table in TASKS for check in checks(table, "bf16_pure") if check.said != UNSEARCHED)
    yield _agreeing("agrees, with ZeRO's states in bf16: all tables", pure)


def checks(table: str, zero_precision: str = "bf16_mixed") -> Iterator[Check]:
    """Yield what a table's cells say of batches, each with the plan's estimate."""
    for row in read_table(f"table{table}"):
        method = Method.parse(row["method"], TASKS[table])
        precision = zero_precision if method.techniques.zero_stage else "bf16_pure"
        plan = _plans(table, row["model"], precision)[frozenset(method.codes)]
        capacity = _capacities()[row["hardware"]]
        cell = " ".join((row["model"], row["method"], row["hardware"]))
        for micro, said in _sayings(table, row):
            fit = fit_of(plan, micro)
            assert fit is not None
            yield Check(f"{cell} batch {micro}", said, replace(fit, capacity=capacity))


def _sayings(table: str, row: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Yield batches, and what the paper says of them."""
    if row["oom"] == "true":
        yield 1, OUT_OF_MEMORY
        return
    largest = int(row["batch_size"])
    yield largest, FITTED
    if table == SEARCHED:
        untried = (row["hardware"], row["batch_size"]) == LARGEST_TRIED or row["note"].startswith(REPEATED)
        yield 2 * largest, UNSEARCHED if untried else TWICE


def _by_saying(table: str, found: Iterable[Check]) -> Iterator[Figure]:
    groups = defaultdict(list)
    for check in found:
        groups[check.said].append(check)
    for said, group in groups.items():
        yield _agreeing(f"agrees where the paper says {said}: table{table}", group)


def _agreeing(name: str, found: Iterable[Check], floor: float | None = None) -> Figure:
    kept = list(found)
    return rate(name, sum(check.right for check in kept), len(kept), floor=floor)


@cache
def _plans(table: str, model: str, precision: str) -> Plans:
    """Plan the table's methods of a model on one machine: all four have 8 devices, which share state alike."""
    names = dict.fromkeys(row["method"] for row in read_table(f"table{table}") if row["model"] == model)
    return {frozenset(plan.atom_codes): plan for plan in _planned(TASKS[table], model.lower(), precision, names)}


def _planned(
    task: str, model: str, precision: str, methods: Iterable[str], hardware: str = "a800"
) -> list[TrainingPlan]:
    words = {"task": task, "model": model, "precision": precision, "hardware": hardware, "data": "synthetic"}
    typed = [f"{key}={value}" for key, value in words.items()]
    more = ["measure=paper", "optimizer=adamw_cpuadam", f"method={','.join(methods)}"]
    plans = [job.plan for job in jobs_of(run_parser().parse_intermixed_args([*typed, *more]))]
    return [plan for plan in plans if isinstance(plan, TrainingPlan)]


@cache
def _capacities() -> dict[str, int]:
    """Return the bytes of a device of each machine."""
    found = {}
    for hardware in HARDWARE:
        (plan,) = _planned("pretrain", "7b", "bf16_pure", ["Naive"], hardware)
        found[hardware] = plan.config.hardware.memory_bytes or 0
    return found
