"""A run's predicted speed, with the interval in which nine of ten measured speeds lay when such a run was held out."""

from __future__ import annotations

from llmexp.inputs.shape import shape_of
from llmexp.record.predicted import Prediction
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.applied import applied_to
from llmexp.training.predict.calibrated_interval import calibrated_interval, cpu_interval
from llmexp.training.predict.cpu_rates import cpu_rates, measuring_words
from llmexp.training.predict.cpu_step import unknown_on_cpu
from llmexp.training.predict.fp8_work import emulated, fp8_unpredicted
from llmexp.training.predict.interval import groups_of, interval_of, kind_of, other_group, widest_of
from llmexp.training.predict.layers import uncounted
from llmexp.training.predict.predictor import predictor_of
from llmexp.training.predict.rates import missing
from llmexp.training.predict.update import unknown_update

ENGINES = ("deepspeed", "torch", "megatron")
_ATOMS = frozenset(("F", "R", "RS", "C", "Z1", "Z2", "Z3", "O", "Q", "L", "QL", "P"))


def predict(plan: TrainingPlan) -> Prediction | None:
    """Predict the tokens/s of a run; None where `unpredicted` gives a reason."""
    if unpredicted(plan):
        return None
    predictor = predictor_of(plan)
    calibration = applied_to(plan, predictor.source)
    step = predictor.step(calibration.multipliers)
    rate, (low, high, runs) = plan.amount / step.whole, _interval(plan, predictor.source, calibration.runs)
    return Prediction(
        rate=rate,
        low=low * rate,
        high=high * rate,
        held_out_runs=runs,
        source=calibration.words(predictor.source),
        parts_s=step.parts_s,
        calibrated_by=calibration.runs,
        multipliers=dict(calibration.multipliers),
        uncalibrated=plan.amount / predictor.step({}).whole if calibration.runs else None,
    )


def unpredicted(plan: TrainingPlan) -> str:
    """Say in a few words why a run is not predicted; empty where it is."""
    return next(filter(None, (reason(plan) for reason in (_of_model, _of_machine, _of_settings))), "")


def _interval(plan: TrainingPlan, source: str, calibrating_runs: int) -> tuple[float, float, int]:
    if plan.config.hardware.device == "cpu":
        return cpu_interval()
    groups = groups_of(plan, source)
    if plan.config.precision.linears:
        return widest_of([*groups, kind_of(plan), other_group(offloads=plan.techniques.offload_optimizer)])
    return calibrated_interval(groups, calibrating_runs) or interval_of(groups)


def _of_model(plan: TrainingPlan) -> str:
    layers = uncounted(plan.config.model)
    frozen = plan.uncounted.get("flops", "") if shape_of(plan.config.model) is None else ""
    cut = "" if shape_of(plan.config.model) else _cut(plan)
    return layers or frozen or cut


def _cut(plan: TrainingPlan) -> str:
    cut = next(iter(plan.dims.cutting("matrices", "layers")), "")
    return f"parallelism.{cut} of layers that are not like Llama's is not predicted" if cut else ""


def _of_settings(plan: TrainingPlan) -> str:
    config = plan.config
    atom = next((code for code in plan.atom_codes if code not in _ATOMS), None)
    reasons = {
        f"engine={config.engine.name} is not predicted": config.engine.name not in ENGINES,
        f"atom {atom} is not predicted": atom,
        "emulated fp8 is rounded, and multiplied otherwise, at a speed that is not predicted": emulated(plan),
        fp8_unpredicted(plan): fp8_unpredicted(plan),
        "precision.qat rounds weights in every pass, in a time that is not predicted": config.precision.qat,
        "batch.micro=max is not predicted: name a batch": not plan.settled,
        unknown_update(plan): unknown_update(plan),
        "activations of layers that are not like Llama's are not known": config.memory.activation_offload
        and shape_of(config.model) is None,
        "memory.optimizer_folder waits for a disk, whose speed is not predicted": config.memory.optimizer_folder,
        "data.seq_len_schedule is not predicted": config.data.seq_len_schedule,
    }
    return next((reason for reason, is_so in reasons.items() if is_so), "")


def _of_machine(plan: TrainingPlan) -> str:
    if plan.config.hardware.device == "cpu":
        unmeasured = f"this processor is not measured yet: llmexp {' '.join(measuring_words(plan))}"
        return unknown_on_cpu(plan) or ("" if cpu_rates(plan) else unmeasured)
    lacking = missing(plan)
    return f"without {' and '.join(lacking)}" if lacking else ""
