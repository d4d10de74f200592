"""Keys that were set but change nothing in a run, so that the run is not what the user asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from llmexp.errors import hint
from llmexp.schema import Section
from llmexp.training.plan.rate_schedule import has_schedule
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.planning import training_engine

# A longer list of choices does not help in one line.
MOST_CHOICES = 12


def unused_keys(plan: TrainingPlan) -> dict[str, str]:
    """Return why a key changes nothing, by key, for keys whose values differ from the schema's defaults."""
    against = {place: reason for place, reason in _reasons(plan).items() if reason}
    idle = {
        f"{section}.{key}": reason
        for (section, key), reason in against.items()
        if _is_given(getattr(plan.config, section), key)
    }
    return idle | dict(_idle_options(plan))


def _reasons(plan: TrainingPlan) -> dict[tuple[str, str], str]:
    """Return why a key changes nothing, by section and key; the reason is empty for a key that has an effect."""
    config, adapter = plan.config, plan.techniques.adapter
    no_lora = "" if adapter == "lora" else "only L and QL have such matrices"
    no_split = "" if config.data.dataset else "only a dataset of data.path has splits"
    unscaled = "" if config.precision.scales_loss else "only losses with parameters in fp16 are scaled"
    no_search = "" if config.batch.is_searched else "only batch.micro=max searches for a batch"
    optimizer = config.optimizer
    falls = "" if optimizer.schedule != "constant" else "optimizer.schedule=constant does not fall"
    schedule = "" if has_schedule(optimizer) else "the learning rate is constant"
    whole = (
        "" if config.measure.stop_at_interval_share else "no repeat ends early without measure.stop_at_interval_share"
    )
    return {
        **dict.fromkeys((("adapter", key) for key in ("rank", "alpha", "dropout", "targets")), no_lora),
        ("adapter", "virtual_tokens"): "" if adapter == "prompt" else "only P has such embeddings",
        ("adapter", "save"): "" if adapter else "only L, QL and P have an adapter to save",
        ("precision", "scaling"): "" if config.precision.linears else "only precision.linears=fp8 has scales",
        ("precision", "qat_group_size"): "" if config.precision.qat else "only precision.qat has groups",
        **dict.fromkeys((("precision", key) for key in ("initial_scale_power", "scale_window")), unscaled),
        **dict.fromkeys((("batch", key) for key in ("search", "largest", "fits")), no_search),
        ("data", "split"): no_split,
        ("optimizer", "decay_steps"): ""
        if optimizer.schedule == "wsd"
        else "only optimizer.schedule=wsd has such steps",
        ("optimizer", "final_lr_share"): falls,
        ("optimizer", "total_steps"): schedule,
        ("measure", "min_steps"): whole,
        ("measure", "profile_steps"): "" if config.measure.profile else "measure.profile=false traces no step",
    }


def _is_given(section: Section, key: str) -> bool:
    field = type(section).model_fields.get(key)
    return field is not None and bool(getattr(section, key) != field.get_default())


def _idle_options(plan: TrainingPlan) -> Iterator[tuple[str, str]]:
    """Yield the names of engine.options that the engine does not read, each with the reason."""
    config, engine = plan.config, training_engine(plan.config)
    known = (
        engine.known_options(config, engine.native_config(config, plan.techniques, plan.dims))
        if config.engine.options
        else None
    )
    for name in config.engine.options if known is not None else ():
        if name not in (known or ()):
            yield f"engine.options.{name}", f"engine={engine.name} {_choices(name, known or ())}"


def _choices(name: str, known: Collection[str]) -> str:
    if not known:
        return "has no options in this run"
    listed = f"choices are {', '.join(sorted(known))}" if len(known) <= MOST_CHOICES else ""
    return f"has no such option: {hint('engine option', name, known)}{listed}".strip(" :")
