"""The runs that predictions are fitted to and judged on: the paper's cells with a speed, and this project's own."""

from __future__ import annotations

import csv
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.method import Method
from llmexp.paper.printed import PaperCell, paper_cells
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict import unpredicted
from llmexp.training.predict.calibration import Evidence, calibrated
from llmexp.training.predict.rates import Rates, rates_of
from llmexp.training.predict.schedule import step_time
from llmexp.training.predict.work import Work, work_of

RESULTS, PUBLISHED = Path("docs/results"), Path("benchmarks/published.csv")
_PROGRAM = ("python", "-m", "llmexp")
# Cells of table IV that contradict others without a note: their step is 5 to 7 times that of batch 1, or half of it.
CONTRADICTING = {("7B", "F+Z3+O"), ("13B", "F+Z3+O"), ("13B", "F+R+Z3+O"), ("13B", "R+Z3+O")}

# How sharply the longer of two times decides where nothing overlaps: they add up.
_ADDED = 1.0

# A weight that 4-bit layers make bf16 is read and written in fp32, which products read 2 bytes more of.
_CAST_TO_FP32_BYTES = 2 + 4 + 2


@dataclass(frozen=True)
class Cell:
    """A run whose speed is known: its plan, its place, and the seconds of a step that were measured."""

    table: str
    plan: TrainingPlan
    step_s: float
    odd: bool = False
    attention_share: float | None = None
    """The share of the peak that an attention kernel reaches which no engine here has; None: it has another."""
    score_bytes: float | None = None
    """The bytes that forward and backward move for each score, by kernels that no engine here has."""
    tensor_beside: bool | None = None
    """Whether tensor parallelism sends beside the gradients of weights; None: as its engine does."""
    tensor_beside_forward: bool = False
    """Whether it sends beside the products of forward too, as that of no engine here does."""
    tensor_sends: float = 1.0
    """Times as much as tensor parallelism here sends, and in as many more calls."""
    stages_send_parts: bool = False
    """Whether each rank of tensor parallelism sends the next stage a part, which its ranks gather."""
    activations_moved: float = 1.0
    """The share of all activations that its program moves to the host, where its plan moves them."""
    reduces_beside: bool = True
    """Whether gradients are reduced while backward computes others, as every engine does."""
    multiplies_fp32: bool = False
    """Whether weights of 4 bits are multiplied in TF32, although its engine multiplies in bf16."""

    @property
    def work(self) -> Work:
        """Return the work of a step of its program on one rank."""
        work = work_of(self.plan)
        work = replace(
            work,
            tensor_bytes=work.tensor_bytes * self.tensor_sends,
            tensor_calls=work.tensor_calls * self.tensor_sends,
            tensor_beside_forward=float(self.tensor_beside_forward),
            offloaded_activation_bytes=work.offloaded_activation_bytes * self.activations_moved,
        )
        if self.tensor_beside is not None:
            work = replace(work, tensor_beside=float(self.tensor_beside))
        if self.stages_send_parts and not self.plan.dims.sequence:
            part = work.stage_bytes / self.plan.dims.tp
            work = replace(work, stage_bytes=part, tensor_bytes=work.tensor_bytes + work.stage_bytes - part)
        return self._in_fp32(work) if self.multiplies_fp32 else work

    def _in_fp32(self, work: Work) -> Work:
        peaks, cast_bytes = (
            self.plan.config.hardware.peak_flops_per_s,
            _CAST_TO_FP32_BYTES * work.dequantized_parameters,
        )
        products_flops = work.products_flops * peaks["bf16"] / peaks["tf32"]
        return replace(work, products_flops=products_flops, cast_bytes=cast_bytes, cast_bytes_behind=cast_bytes)

    def rates(self, known: Mapping[str, Any]) -> Rates:
        """Return the rates of its machine by these constants, with the attention that its program had."""
        rates, _ = rates_of(self.plan, known)
        own = {"attention_share": self.attention_share} if self.attention_share else {}
        if self.score_bytes:
            # They stream through memory as the fused update does; the schedule adds those of backward by its factor.
            own["score_bytes"] = self.score_bytes * rates.fused_update / (1 + rates.backward_attention)
        if not self.reduces_beside:
            own["overlap_replicated"] = _ADDED
        return replace(rates, **own)

    def evidence(self, known: Mapping[str, Any]) -> Evidence:
        """Return what the run tells multipliers by these constants."""
        work, rates = self.work, self.rates(known)
        return Evidence(self.step_s, lambda multipliers: float(step_time(work, calibrated(rates, multipliers)).whole))

    @property
    def hardware(self) -> str:
        """The name of its hardware."""
        return self.plan.config.hardware.name

    @property
    def method(self) -> frozenset[str]:
        """Its atoms, in whatever order they were printed."""
        return frozenset(self.plan.atom_codes)

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.plan.config.task.name

    @property
    def offloads(self) -> bool:
        """Tell whether the host updates parameters."""
        return self.plan.techniques.offload_optimizer

    def __str__(self) -> str:
        config = self.plan.config
        return f"{self.table} {config.model.name} {self.plan.method} {self.hardware} batch {self.plan.batch.micro}"


def printed_cells() -> list[Cell]:
    """Return all cells of tables III, IV and IX that have a speed."""
    by_plan: dict[tuple[str, str, str], list[PaperCell]] = defaultdict(list)
    for table in ("III", "IV", "IX"):
        for cell in paper_cells(table):
            if not cell.oom:
                by_plan[cell.task, cell.model.lower(), cell.hardware].append(cell)
    return [made for key, cells in by_plan.items() for made in _planned(*key, cells)]


def own_cells() -> list[Cell]:
    """Return the pre-training and fine-tuning of one card that docs/results has, of engines that are predicted.

    Those in fp8 are judged apart, beside others' rows on that card.
    """
    found = []
    for path in sorted(RESULTS.glob("*/*.csv")):
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            made = own_cell(path, row) if row.get("step_time_s") else None
            if made and not made.plan.config.precision.linears and not unpredicted(made.plan):
                found.append(made)
    return found


def others_cells() -> list[Cell]:
    """Return the published runs of others that are predicted, each with its source as its table; none is fitted to."""
    if not PUBLISHED.exists():
        return []
    made: list[Cell] = import_module("benchmarks.prediction.published").published_cells()
    return [cell for cell in made if not unpredicted(cell.plan)]


def _planned(task: str, model: str, hardware: str, cells: Iterable[PaperCell]) -> Iterator[Cell]:
    words = [f"task={task}", f"model={model}", f"hardware={hardware}", "precision=bf16_pure", "data=synthetic"]
    names = dict.fromkeys(cell.method for cell in cells)
    plans = _plans([*words, "measure=paper", "optimizer=adamw_cpuadam", "batch.micro=1", f"method={','.join(names)}"])
    by_atoms = {frozenset(plan.atom_codes): plan for plan in plans}
    for cell in cells:
        plan = by_atoms[frozenset(Method.parse(cell.method, task).codes)]
        batch = plan.dims.batch(cell.batch_micro, 1)
        settled = plan.model_copy(update={"batch": batch})
        step_s = settled.amount / (cell.tokens_per_s or 1.0)
        yield Cell(cell.table, settled, step_s, _is_odd(cell), multiplies_fp32=_multiplies_fp32(settled))


def _multiplies_fp32(plan: TrainingPlan) -> bool:
    """Tell whether 4-bit layers computed in fp32, as transformers' do where nothing says otherwise.

    The paper does not say so. On its A800, F and Z2 save 2 to 5 times as many seconds of a step of QL as of one of L.
    """
    atoms = plan.techniques
    return (
        atoms.quantization is not None and atoms.adapter == "lora" and not (atoms.flash_attention or atoms.zero_stage)
    )


def _is_odd(cell: PaperCell) -> bool:
    """Tell whether the printed speed is probably wrong, by its note or because it contradicts other cells."""
    contradicts = cell.table == "IV" and cell.hardware != "a800" and (cell.model, cell.method) in CONTRADICTING
    return contradicts or (cell.doubtful and not cell.is_about_memory)


def own_cell(path: Path, row: dict[str, str]) -> Cell:
    """Plan a row of a table of results by the command that it names."""
    words = shlex.split(row["command"])[len(_PROGRAM) :]
    named = any(word.startswith("hardware=") for word in words)
    (plan,) = _plans([word for word in words if word != "-m"] + [f"hardware={row['hardware']}"] * (not named))
    return Cell(f"{path.parent.name}/{path.stem}", plan, float(row["step_time_s"]))


def _plans(words: list[str]) -> list[TrainingPlan]:
    plans = [job.plan for job in jobs_of(run_parser().parse_intermixed_args(words))]
    return [plan for plan in plans if isinstance(plan, TrainingPlan)]
