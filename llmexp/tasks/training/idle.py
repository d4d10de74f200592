"""Keys that a run was given and that change nothing in it: then it is another run than was asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from llmexp.errors import hint
from llmexp.plan.training_plan import TrainingPlan
from llmexp.schema import Section, TrainingConfig
from llmexp.tasks.training.planning import training_engine

# More are no help in a line.
MOST_CHOICES = 12


def idle_keys(plan: TrainingPlan) -> dict[str, str]:
    """By key, why it changes nothing; of keys whose values are not the schema's own defaults."""
    against = {place: reason for place, reason in _reasons(plan).items() if reason}
    idle = {f"{section}.{key}": reason for (section, key), reason in against.items() if _is_given(getattr(plan.config, section), key)}
    return idle | dict(_idle_options(plan))


def _reasons(plan: TrainingPlan) -> dict[tuple[str, str], str]:
    """By section and key, why the key changes nothing; empty where it counts."""
    config, adapter = plan.config, plan.techniques.adapter
    no_lora = "" if adapter == "lora" else "only L and QL have such matrices"
    no_split = "" if _is_dataset(config) else "only data=hf, and data=instructions with data.path, have splits"
    drawn = "data=synthetic draws its tokens" if config.data.name == "synthetic" else ""
    whole = "" if config.measure.stop_at_interval_share else "no repeat ends early without measure.stop_at_interval_share"
    return {
        **dict.fromkeys((("adapter", key) for key in ("rank", "alpha", "dropout", "targets")), no_lora),
        ("adapter", "virtual_tokens"): "" if adapter == "prompt" else "only P has such embeddings",
        ("adapter", "save"): "" if adapter else "only L, QL and P have an adapter to save",
        ("data", "split"): no_split,
        ("data", "field"): "" if config.data.name == "hf" else "only data=hf has columns by name",
        ("data", "tokenizer"): drawn,
        ("data", "pack"): drawn,
        ("measure", "min_steps"): whole,
        ("measure", "profile_steps"): "" if config.measure.profile else "measure.profile=false traces no step",
    }


def _is_dataset(config: TrainingConfig) -> bool:
    return config.data.name == "hf" or (config.data.name == "instructions" and config.data.path is not None)


def _is_given(section: Section, key: str) -> bool:
    return bool(getattr(section, key) != type(section).model_fields[key].get_default())


def _idle_options(plan: TrainingPlan) -> Iterator[tuple[str, str]]:
    """Names of engine.options that the engine does not look at."""
    config, engine = plan.config, training_engine(plan.config)
    known = engine.known_options(config, engine.native_config(config, plan.techniques, plan.dims)) if config.engine.options else None
    for name in config.engine.options if known is not None else ():
        if name not in (known or ()):
            yield f"engine.options.{name}", f"engine={engine.name} {_choices(name, known or ())}"


def _choices(name: str, known: Collection[str]) -> str:
    if not known:
        return "has no options in this run"
    listed = f"choices are {', '.join(sorted(known))}" if len(known) <= MOST_CHOICES else ""
    return f"has no such option: {hint('engine option', name, known)}{listed}".strip(" :")
