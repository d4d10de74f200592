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
from benchmarks.prediction.cells import CONTRADICTING
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
# The errors that these notes name are in other columns.
_OF_SPEED = ("slower", "faster", "7236.8", "640435", "step time", "the text puts this row")
AGREES, DECIDES, RIGHT = 90.0, 85.0, 98.0
Plans = dict[frozenset[str], TrainingPlan]


@dataclass(frozen=True)
class Check:
    """A batch of a cell, what the paper says of it, and the plan's estimate."""

    cell: str
    said: str
    fit: Fit
    odd: bool = False
    """The cell's memory or batch contradicts other cells."""

    @property
    def fits(self) -> bool:
        """Tell whether it fitted the paper's card."""
        return self.said == FITTED

    @property
    def right(self) -> bool:
        """Tell whether the paper agrees with a yes, and disagrees with everything else."""
        return (self.fit.verdict == "yes") == self.fits

    @property
    def decided(self) -> bool:
        """Tell whether the plan is sure."""
        return self.fit.verdict != "uncertain"


def memory_verdicts() -> Iterator[Figure]:
    """Yield the shares of verdicts that agree, by table and by what the paper says, and of errors by verdict."""
    tables = {table: list(checks(table)) for table in TASKS}
    for table, found in tables.items():
        searched = [check for check in found if check.said != UNSEARCHED]
        yield _agreeing(f"the plan's memory agrees with the paper: table{table}", searched, AGREES)
        yield from _by_saying(table, found)
    whole = [check for found in tables.values() for check in found if check.said != UNSEARCHED]
    for verdict in ("yes", "uncertain", "no"):
        given = [check for check in whole if check.fit.verdict == verdict]
        wrong = sum(check.fits == (verdict == "no") for check in given)
        yield rate(
            f"did not fit where the plan says {verdict}" if verdict != "no" else "fitted where it says no",
            wrong,
            len(given),
        )
    yield from _deciding("all cells", whole, None)
    yield _agreeing("the largest batch fits and its double does not", _frontier(tables[SEARCHED]))
    yield from even_verdicts()
    pure = (check for table in TASKS for check in checks(table, "bf16_pure") if check.said != UNSEARCHED)
    yield _agreeing("agrees, with ZeRO's states in bf16: all tables", pure)


def even_verdicts() -> Iterator[Figure]:
    """Yield how often the plan is sure, how often it is right then, and at the frontier, of cells that fit together."""
    even = {table: [check for check in checks(table) if not check.odd] for table in TASKS}
    whole = [check for found in even.values() for check in found if check.said != UNSEARCHED]
    yield from _deciding("cells that contradict no others", whole, (DECIDES, RIGHT))
    name = "the largest batch fits and its double does not, cells that contradict no others"
    yield _agreeing(name, _frontier(even[SEARCHED]), AGREES)


def _deciding(name: str, found: list[Check], floors: tuple[float, float] | None) -> Iterator[Figure]:
    """Yield how often the plan is sure, and how often it is right then."""
    decided = [check for check in found if check.decided]
    decides, right = floors or (None, None)
    yield rate(f"the plan is sure: {name}", len(decided), len(found), floor=decides)
    yield _agreeing(f"right where it is sure: {name}", decided, right)


def _frontier(found: Iterable[Check]) -> Iterator[Check]:
    """Yield the largest batches and their doubles, of cells that were searched to their end."""
    pairs: dict[str, list[Check]] = defaultdict(list)
    for check in found:
        pairs[check.cell.rpartition(" batch ")[0]].append(check)
    for pair in pairs.values():
        if {check.said for check in pair} == {FITTED, TWICE}:
            yield from pair


def checks(table: str, zero_precision: str = "bf16_mixed") -> Iterator[Check]:
    """Yield what a table's cells say of batches, each with the plan's estimate."""
    for row in read_table(f"table{table}"):
        method = Method.parse(row["method"], TASKS[table])
        precision = precision_of(method, zero_precision)
        plan = paper_plans(table, row["model"], precision)[frozenset(method.codes)]
        capacity = capacities()[row["hardware"]]
        cell = " ".join((row["model"], row["method"], row["hardware"]))
        for micro, said in _sayings(table, row):
            fit = fit_of(plan, micro)
            assert fit is not None
            yield Check(f"{cell} batch {micro}", said, replace(fit, capacity=capacity), is_odd(table, row))


def precision_of(method: Method, zero_precision: str = "bf16_mixed") -> str:
    """Return the precision that the paper's memory speaks for."""
    return zero_precision if method.techniques.zero_stage else "bf16_pure"


def is_odd(table: str, row: dict[str, str]) -> bool:
    """Tell whether the printed memory or batch is probably wrong, by its note or because it contradicts other cells."""
    doubted = row["note"].startswith("doubt") and not any(words in row["note"] for words in _OF_SPEED)
    contradicts = (row["model"], row["method"]) in CONTRADICTING and row["hardware"] != LARGEST_TRIED[0]
    return doubted or (table == SEARCHED and contradicts)


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
def paper_plans(table: str, model: str, precision: str) -> Plans:
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
def capacities() -> dict[str, int]:
    """Return the bytes of a device of each machine."""
    found = {}
    for hardware in HARDWARE:
        (plan,) = _planned("pretrain", "7b", "bf16_pure", ["Naive"], hardware)
        found[hardware] = plan.config.hardware.memory_bytes or 0
    return found
