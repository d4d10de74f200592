"""What `llmexp plan --stages` says of a pipeline whose stages have unequal cards."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.errors import ConfigError, unknown
from llmexp.launch.detect import described
from llmexp.record.digits import rounded
from llmexp.schema import HardwareConfig
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict import unpredicted
from llmexp.training.predict.changed import keys_of_file
from llmexp.training.predict.rates import missing
from llmexp.training.predict.unequal_stages import on_card, unequal_pipeline


def unequal_stages(plan: TrainingPlan, names: Sequence[str]) -> str:
    """Say in one line the best share of layers and its speed; raises ConfigError for what cannot be simulated."""
    cards = [_card(name) for name in names]
    if why := _unknown(plan, cards):
        raise ConfigError(f"--stages {','.join(names)}: {why}")
    found, devices = unequal_pipeline(plan, cards), plan.devices
    layers = ", ".join(f"{count} on {name}" for count, name in zip(found.layers, names, strict=True))
    rate, equal = (f"{rounded(each / devices)} {plan.rate_unit} a device" for each in (found.rate, found.equal_rate))
    return (
        f"simulated: {rate} with layers {layers}; {equal} with as many on each; slowest: {found.slowest}; whether a "
        "share fits its card is not checked"
    )


def _card(name: str) -> HardwareConfig:
    keys = keys_of_file(name)
    if keys is None or "devices_per_node" not in keys or keys.get("device") != "cuda":
        raise unknown("hardware of --stages", name, [each for each in described() if each != "cpu"])
    return HardwareConfig.model_validate(keys)


def _unknown(plan: TrainingPlan, cards: Sequence[HardwareConfig]) -> str:
    stages, config = plan.dims.pp, plan.config
    lacking = [card.name for card in cards if config.hardware.device == "cuda" and missing(on_card(plan, card))]
    reasons = {
        f"names {len(cards)} cards for parallelism.pp={stages}: name one for each stage, of two or more": (
            len(cards) != stages or stages == 1
        ),
        f"{plan.name} is skipped: {plan.skip}": plan.skip,
        f"{plan.name} is not predicted: {unpredicted(plan)}": plan.predicted is None,
        "stages with parallelism.ends_as_layers are not simulated: leave it out": plan.dims.ends_as_layers is not None,
        "stages that interleave are not simulated: use parallelism.virtual_stages=1": plan.dims.virtual_stages > 1,
        f"precision={config.precision.name} has no rates on {' and '.join(lacking)}": lacking,
    }
    return next((why for why, is_so in reasons.items() if is_so), "")
