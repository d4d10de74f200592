"""What a run of serve.quality asks, and what its plan refuses: nothing is asked that could not be compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmexp.errors import ConfigError
from llmexp.record.reading import read_json
from llmexp.schema import HfModel
from llmexp.serving.config import ServingRunConfig
from llmexp.serving.plan.draws import DrawSeries
from llmexp.serving.plan.prompts import Prompts
from llmexp.serving.plan.quantized import INT4
from llmexp.serving.plan.served_model import CheckpointModel, ServedModel

KEY = "serve.quality"
# The set is the same whatever the run's seed is, and no load point has this number.
_SERIES = DrawSeries(seed=0, point=-1)
MOST_PROMPT_TOKENS = 64
# A cache's dtype that is the model's own.
_OWN = (None, "", "auto")


def check_quality(config: ServingRunConfig, model: ServedModel, positions: int) -> None:
    """Raise ConfigError where the answers to serve.quality could not be compared with one process's."""
    serve = config.serve
    if serve.quality is None:
        return
    if serve.weights == "own":
        raise ConfigError(f"{KEY} compares answers with the folder's weights, and serve.weights=own has none: drop one")
    if serve.adapters:
        raise ConfigError(f"{KEY} compares the model's own answers, and serve.adapters has others: leave one out")
    if serve.address and not isinstance(model, CheckpointModel):
        raise ConfigError(
            f"{KEY} with serve.address: nobody knows which weights model={model.name} has there: set model=<folder>, "
            f"the one that the server serves, or leave {KEY} out"
        )
    prompt_tokens(config, positions)


def prompt_tokens(config: ServingRunConfig, positions: int) -> int:
    """Return the tokens of each prompt, of texts the most; raises ConfigError where requests have no room for them."""
    quality = config.serve.quality
    assert quality
    room = positions - quality.output_tokens
    wanted = quality.prompt_tokens or (room if config.serve.texts else min(MOST_PROMPT_TOKENS, room))
    if not 0 < wanted <= room:
        raise ConfigError(
            f"{KEY}.output_tokens={quality.output_tokens}"
            + (f" and {KEY}.prompt_tokens={quality.prompt_tokens}" if quality.prompt_tokens else "")
            + f": the server has room for requests of {positions} tokens, as the load has them: give fewer"
        )
    return wanted


def quality_prompts(
    config: ServingRunConfig, model: ServedModel, positions: int, begin: Sequence[int], tokens: Sequence[int] | None
) -> list[list[int]]:
    """Return prompts of random tokens, from a fixed seed; `begin` and `tokens` are a checkpoint's own."""
    assert config.serve.quality
    prompts, length = Prompts(model.vocab_size, _SERIES, begin=begin, tokens=tokens), prompt_tokens(config, positions)
    return [prompts.prompt(number, length) for number in range(config.serve.quality.prompts)]


def expected_changes(config: ServingRunConfig) -> list[str]:
    """Return the options by which a server computes otherwise than the folder's weights say.

    Formats that the folder itself has are no such options: the process that is compared computes with them too.
    """
    options = config.engine.options
    own = {"quantization": (*_OWN, *INT4), "kv_dtype": _OWN}
    found = {name: options.get(name) for name in own if options.get(name) not in own[name]}
    if isinstance(config.model, HfModel) and _is_quantized(config.model):
        found.pop("quantization", None)
    return [f"engine.options.{name}={given}" for name, given in found.items()]


def _is_quantized(model: HfModel) -> bool:
    """Tell whether a checkpoint names a format of its own; False for one that another run has yet to make."""
    try:
        return "quantization_config" in read_json(Path(model.path).expanduser() / "config.json")
    except (OSError, ValueError, TypeError):
        return False
