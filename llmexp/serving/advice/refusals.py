"""Why no option can be given: what comes nearest, and what it lacks."""

from __future__ import annotations

from llmexp.record.digits import GIB, rounded
from llmexp.serving.advice.cards import cards_for_rate, is_rated
from llmexp.serving.advice.offload.words import split_words
from llmexp.serving.advice.open_keys import TP, Settings, devices_of, layouts
from llmexp.serving.advice.space import ServingSpace
from llmexp.serving.advice.trials import ServedTrial, with_settings
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.prediction import room_of

_MOST_DEVICES = 1024


def refusal(space: ServingSpace) -> str:
    """Say in one line why a space has no trial: no room, or an objective that none keeps."""
    fitting = list(space.fitting())
    return _not_kept(space, fitting) if fitting else _without_room(space)


def _without_room(space: ServingSpace) -> str:
    base = space.base
    nearest = max(layouts(base, space.engine, space.fixed), key=lambda one: room_of(with_settings(base, one)))
    lacking = -room_of(with_settings(base, nearest)) / GIB
    return (
        f"model={base.config.model.name} does not fit {_machine(base)}: the nearest, {_words(nearest)}, lacks "
        f"{rounded(lacking)} GiB a device{_devices_that_hold(base, nearest)}{_split(base)}"
    )


def _split(base: ServingPlan) -> str:
    """Say how fast one device would be with its host's memory, where that is known."""
    said = split_words(base)
    return f"; or {said}" if said.startswith("simulated") else ""


def _devices_that_hold(base: ServingPlan, settings: Settings) -> str:
    """Say how many devices would hold the model with these formats."""
    degree = int(settings.get(TP, base.config.parallelism.tp))
    while degree < _MOST_DEVICES and room_of(with_settings(base, {**settings, TP: degree})) <= 0:
        degree *= 2
    return f"; {degree} of them would hold it" if degree < _MOST_DEVICES else ""


def _not_kept(space: ServingSpace, fitting: list[ServedTrial]) -> str:
    """Name the fewest cards that would keep the objective, or the fastest that misses it."""
    asked = _objective(space.base)
    found = {trial.devices: trial for trial in fitting}
    cards = [(cards, trial) for trial in found.values() if (cards := cards_for_rate(trial.plan))]
    if is_rated(space.base) and cards:
        few, trial = min(cards, key=lambda one: one[0].devices)
        need = f"{_words(trial.settings)} parallelism.dp={few.copies} would take {few.devices} devices"
        return f"nothing on {_machine(space.base)} keeps {asked}: {need}"
    best = min(fitting, key=lambda trial: trial.tpot_s)
    load = max(best.predicted.loads, key=lambda one: one.tpot_s)
    return (
        f"nothing on any number of hardware={space.base.config.hardware.name} keeps {asked}: {_words(best.settings)} "
        f"has TPOT {rounded(1e3 * load.tpot_s)} ms and TTFT {rounded(1e3 * load.ttft_s)} ms at {load.load}"
    )


def _objective(base: ServingPlan) -> str:
    serve = base.config.serve
    limits = {"ttft_s": serve.slo.ttft_s, "tpot_s": serve.slo.tpot_s, "end_to_end_s": serve.slo.end_to_end_s}
    asked = [f"serve.slo.{name}={limit:g}" for name, limit in limits.items() if limit]
    rates = ",".join(rate if isinstance(rate, str) else f"{rate:g}" for rate in serve.rate)
    return " ".join([*([f"serve.rate={rates}"] if rates else []), *asked])


def _machine(base: ServingPlan) -> str:
    devices = devices_of(base)
    return f"{devices} {'device' if devices == 1 else 'devices'} of hardware={base.config.hardware.name}"


def _words(settings: Settings) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items()) or "as it is"
