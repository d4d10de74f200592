"""A run's predicted speed, with the interval in which nine of ten measured speeds lay when such a run was held out."""

from __future__ import annotations

from llmexp.inputs.shape import shape_of
from llmexp.record.predicted import Prediction
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.interval import group_of, interval_of
from llmexp.training.predict.rates import missing, rates_of
from llmexp.training.predict.schedule import step_time
from llmexp.training.predict.work import work_of

ENGINES = ("deepspeed", "torch")
_ATOMS = frozenset(("F", "R", "C", "Z1", "Z2", "Z3", "O", "Q", "L", "QL"))


def predict(plan: TrainingPlan) -> Prediction | None:
    """Predict the tokens/s of a run; None where `unpredicted` gives a reason."""
    if unpredicted(plan):
        return None
    rates, source = rates_of(plan.config.hardware, plan.config.precision.products, plan.dims.dp)
    step = step_time(work_of(plan), rates)
    group = group_of(plan.config.task.name, source, offloads=plan.techniques.offload_optimizer)
    rate, (low, high, runs) = plan.amount / step.whole, interval_of(group)
    return Prediction(
        rate=rate, low=low * rate, high=high * rate, held_out_runs=runs, source=source, parts_s=step.parts_s
    )


def unpredicted(plan: TrainingPlan) -> str:
    """Say in a few words why a run is not predicted; empty where it is."""
    return next(filter(None, (_of_model(plan), _of_machine(plan), _of_layout(plan), _of_settings(plan))), "")


def _of_model(plan: TrainingPlan) -> str:
    shape = shape_of(plan.config.model)
    if shape is None:
        return f"model={plan.config.model.name} is not like Llama"
    return f"model={plan.config.model.name} has experts" if shape.num_experts else ""


def _of_layout(plan: TrainingPlan) -> str:
    cut = next((name for name, degree in plan.dims.degrees.items() if degree > 1 and name != "dp"), None)
    if cut:
        return f"parallelism.{cut} is not predicted yet"
    if plan.config.hardware.nodes > 1:
        return "several nodes are not predicted yet"
    known = plan.config.engine.name in ENGINES
    return "" if known else f"engine={plan.config.engine.name} is not predicted yet"


def _of_settings(plan: TrainingPlan) -> str:
    config = plan.config
    atom = next((code for code in plan.atom_codes if code not in _ATOMS), None)
    reasons = {
        f"atom {atom} is not predicted yet": atom,
        "batch.micro=max is not predicted: name a batch": not plan.settled,
        f"optimizer={config.optimizer.name} is not predicted yet": plan.config.optimizer.kinds != ("AdamW",),
        "kernels.liger is not predicted yet": config.kernels.liger,
        "memory.activation_offload is not predicted yet": config.memory.activation_offload,
        "data.seq_len_schedule is not predicted yet": config.data.seq_len_schedule,
        f"precision={config.precision.name} is not predicted yet": config.precision.parameters != "bf16",
    }
    return next((reason for reason, is_so in reasons.items() if is_so), "")


def _of_machine(plan: TrainingPlan) -> str:
    hardware = plan.config.hardware
    if hardware.device == "cpu":
        return "hardware=cpu is not predicted yet"
    lacking = missing(hardware, plan.config.precision.products, plan.dims.dp)
    return f"without {' and '.join(lacking)}" if lacking else ""
