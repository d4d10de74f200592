"""The two training tasks, pretrain and finetune."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

from llmexp.analysis.metric import Metrics
from llmexp.analysis.stability import is_known_to
from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.memory import Fit
from llmexp.record.result import Doubt, DoubtKind, Metric, ResultPoint, RunResult, RunStatus
from llmexp.record.samples import StepSample, TrainingSummary
from llmexp.report.row import Row
from llmexp.schema import MadeModel
from llmexp.tasks.base import PlanWith, Task
from llmexp.tasks.resolve import resolve
from llmexp.training.advice.fitting import fitting
from llmexp.training.advice.mathematics import changes_of
from llmexp.training.advice.options import options
from llmexp.training.checkpoint_size import checkpoint_bytes
from llmexp.training.config import TrainingConfig
from llmexp.training.convergence import divergence
from llmexp.training.describe import describe, precision_note
from llmexp.training.largest_batch import next_trial, points_of, settled, with_batch
from llmexp.training.made import made_model
from llmexp.training.outside_metrics import all_metrics
from llmexp.training.over_steps import skipped_words
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.planning import plan_training
from llmexp.training.predict.cpu_rates import measuring_words
from llmexp.training.predict.learning import learn
from llmexp.training.predict.sensitivity import sensitivity_words
from llmexp.training.repeats import RunConstants, TrainingRepeat
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.searched_batch_plot import draw_search
from llmexp.training.report.section import TrainingSection
from llmexp.training.short_run import pilot
from llmexp.training.stages import unequal_stages
from llmexp.training.traced_memory import trace_memory
from llmexp.training.traced_table import traced_table
from llmexp.training.trained_run import TrainedRun
from llmexp.training.unused_keys import unused_keys

# Two repeats may agree by chance, which would end the run too early.
MIN_REPEATS = 3


class Training(Task[TrainingConfig, TrainingPlan]):
    """A training task trains a model from random weights or from its own pre-trained weights."""

    config_type = TrainingConfig
    plan_type = TrainingPlan
    sample_type = StepSample
    summary_type = TrainingSummary
    headlines = ("mfu", "peak_device_used_bytes", "peak_allocated_bytes", "peak_rss_bytes")
    curves = ("loss",)
    row_type = TrainingRow
    trains = True
    brief = ("source", "batch")
    trained_type = TrainedRun
    section_type = TrainingSection

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def metrics(self) -> Metrics:  # type: ignore[override]
        """llmexp's own metrics of training, and those of other packages."""
        return all_metrics()

    def plan(self, config: TrainingConfig) -> TrainingPlan:
        """Plan method, degrees, native configuration, and the arithmetic of batch, FLOPs and memory.

        A package whose metric is broken is told before anything is measured: raises ConfigError.
        """
        all_metrics()
        return plan_training(config)

    def describe(self, plan: TrainingPlan) -> dict[str, str]:
        """Describe atoms, degrees, batch, steps, precision, parameters and weights."""
        return describe(plan)

    def made_model(self, plan: TrainingPlan) -> MadeModel | None:
        """Return the whole model that the first repeat saves."""
        return made_model(plan)

    def fit(self, plan: TrainingPlan) -> Fit | None:
        """Return how the run fits by its training state, which is certain, and by an estimate of its activations."""
        return fit_of(plan, plan.batch.micro)

    def checkpoint_bytes(self, plan: TrainingPlan) -> int | None:
        """Return the bytes of trained parameters and their optimizer states."""
        return checkpoint_bytes(plan)

    def unequal_stages(self, plan: TrainingPlan, hardware: Sequence[str]) -> str:
        """Say the best share of layers and its speed, simulated."""
        return unequal_stages(plan, hardware)

    def trace_memory(self, plan: TrainingPlan) -> str:
        """Return the parts of a rank's memory at the moments that decide, beside those of the formula."""
        return traced_table(plan, trace_memory(plan))

    def options(self, plan_with: PlanWith[TrainingPlan], fixed: Mapping[str, str]) -> Iterator[TrainingPlan]:
        """Yield engines, layouts, methods and precisions, each with the largest batch that fits."""
        return options(plan_with, fixed)

    def fitting(self, plan: TrainingPlan) -> Sequence[str]:
        """Return the smallest changes of method or batch that make the plan fit."""
        return fitting(plan)

    def lifted_by(self, plan: TrainingPlan) -> str:
        """Say what a quarter more of each number of the hardware would gain."""
        return sensitivity_words(plan)

    def changes_mathematics(self, plan: TrainingPlan) -> Sequence[str]:
        """Say what may change the loss at equal tokens."""
        return changes_of(plan)

    def warning(self, plan: TrainingPlan) -> str:
        """Say what precision=auto chose, or what bf16 costs here."""
        return precision_note(plan.config)

    def unused_keys(self, plan: TrainingPlan) -> dict[str, str]:
        """Return keys without effect, such as adapter.rank without L or QL, each with the reason."""
        return unused_keys(plan)

    def constants(self, plan: TrainingPlan) -> RunConstants:
        """Return degrees, FLOPs, peak and price."""
        return RunConstants.of(plan)

    def doubts(self, repeats: Sequence[TrainingRepeat]) -> list[Doubt]:
        """Report graphs that torch.compile made while steps were measured, and steps that updated nothing."""
        graphs = max(rank.compiled_in_window for repeat in repeats for rank in repeat.ranks)
        words = f"compilation: torch.compile made {graphs} graph{'s' * (graphs > 1)} inside the measured window"
        compiled = [Doubt(kind=DoubtKind.COMPILATION, words=words)] if graphs else []
        skipped = skipped_words(repeats)
        return [*compiled, *([Doubt(kind=DoubtKind.SKIPPED, words=skipped)] if skipped else [])]

    def remark(self, repeats: Sequence[TrainingRepeat]) -> str:
        """Say that the loss diverged, where it did."""
        return divergence(repeats)

    def outcome(self, plan: TrainingPlan, metrics: dict[str, Metric | None]) -> str:
        """Return the last step's loss in words."""
        loss = metrics.get("final_loss")
        after = f"{plan.asked_s:g} s" if plan.asked_s else f"{plan.samples} steps"
        return f"loss {loss.mean:.4g} after {after}" if loss and isfinite(loss.mean) else ""

    def may_end_early(self, plan: TrainingPlan) -> bool:
        """Tell whether measure.stop_at_interval_share is set."""
        return plan.config.measure.stop_at_interval_share is not None

    def is_known_enough(self, plan: TrainingPlan, repeats: Sequence[TrainingRepeat]) -> bool:
        """Tell whether tokens_per_s is known as exactly as measure.stop_at_interval_share asks."""
        wanted = plan.config.measure.stop_at_interval_share
        if wanted is None or len(repeats) < MIN_REPEATS:
            return False
        return is_known_to(self.rates(plan, repeats), wanted, looks=max(1, plan.config.measure.repeats - MIN_REPEATS))

    def next_trial(self, plan: TrainingPlan, trials: Sequence[RunResult]) -> TrainingPlan | None:
        """Return the next run of the search for the largest batch."""
        return next_trial(plan, trials)

    def settled(self, plan: TrainingPlan, trials: Sequence[RunResult]) -> TrainingPlan:
        """Return the plan with the largest batch that was found."""
        return settled(plan, trials)

    def as_it_ran(self, plan: TrainingPlan, earlier: RunResult) -> TrainingPlan:
        """Return the plan with the batch that the run found."""
        return plan if plan.settled or not earlier.batch else with_batch(plan, earlier.batch.micro)

    def points_of_trials(self, trials: Sequence[RunResult]) -> list[ResultPoint]:
        """Return each trial's batch, speed and memory."""
        return points_of(trials)

    def level_rows(self, sample: StepSample) -> Iterable[dict[str, Any]]:
        """Yield the step, with its phases as the metrics call them: forward_time_s."""
        for fields in super().level_rows(sample.model_copy(update={"phases_s": None})):
            del fields["phases_s"]
            yield fields | {f"{phase}_time_s": seconds for phase, seconds in (sample.phases_s or {}).items()}

    def draw(self, row: Row, figures: Path) -> None:
        """Draw the search for the largest batch, where there was one."""
        if isinstance(row, TrainingRow):
            draw_search(row, figures / "batch_search.png")

    def predicted_outcome(self, plan: TrainingPlan, sweep: Path, stack: str) -> str | None:
        """Foretell out of memory where a smaller batch already ran out of it."""
        return _out_of_memory_already(plan, sweep, stack)

    def measured_first(self, plan: TrainingPlan) -> Sequence[str]:
        """Return the microbenchmarks that predictions on a processor go by, where they are missing."""
        return () if plan.predicted or plan.config.hardware.device != "cpu" else measuring_words(plan)

    def learn(self, outputs: Path, folders: Sequence[RunFolder]) -> None:
        """Calibrate later predictions by these runs."""
        learn(outputs, folders)

    def pilot(self, plan: TrainingPlan) -> TrainingPlan | None:
        """Return a run of twice three of the plan's steps."""
        return pilot(plan)


def _out_of_memory_already(plan: TrainingPlan, sweep: Path, stack: str) -> str | None:
    """Say that the same run with a smaller batch.micro ran out of memory on this stack, or return None.

    force=true starts the run all the same.
    """
    tried = (
        [] if plan.config.force else [micro for micro in _out_of_memory(plan, sweep, stack) if micro < plan.batch.micro]
    )
    return f"already out of memory at batch.micro={min(tried)}; force=true starts it anyway" if tried else None


def _out_of_memory(plan: TrainingPlan, sweep: Path, stack: str) -> Iterator[int]:
    """Yield batch.micro of the runs of the sweep that ran out of memory and differ from this plan in nothing else."""
    for path in sorted(sweep.glob(f"{'_'.join(plan.name_fields.values())}_*")):
        sibling = RunFolder(path)
        with suppress(RecordError):  # written by another version, which says nothing of this run
            result = sibling.result()
            if not result or not result.batch or (result.status, result.stack) != (RunStatus.OOM, stack):
                continue
            if _differs_in_batch_alone(TrainingPlan.read(sibling.plan_path), plan):
                yield result.batch.micro


def _differs_in_batch_alone(sibling: TrainingPlan, plan: TrainingPlan) -> bool:
    batch = plan.config.batch.model_copy(update={"accumulation": sibling.config.batch.accumulation})
    return resolve(sibling.config.model_copy(update={"batch": batch})).id == plan.id


PRETRAIN, FINETUNE = Training("pretrain"), Training("finetune")
