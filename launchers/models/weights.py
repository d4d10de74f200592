"""Sources of a model's initial values: a generator seeded by parameter name, or a checkpoint's safetensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from llmexp.errors import ConfigError
from llmexp.inputs.checkpoint import Checkpoint
from llmexp.launchers.models.fused_projections import by_projection, rows_of
from llmexp.launchers.models.seeding import fill
from llmexp.schema import HfModel
from llmexp.training.config import TrainingConfig

NAMED_IN_ERRORS = 3
PROGRAM_PRESETS = (".lora_", "prompt_encoder.")
WeightSource = Callable[[str, torch.Tensor], None]
"""Fills the parameter of a name with the same values on every rank and in every layout."""
_STACK = re.compile(r"(.+)\.mlp\.experts\.(gate_up_proj|down_proj)")
# The names of an expert's matrices by the name of its layer: Mixtral's checkpoints first, then those like Qwen's.
_NAMES = {
    "block_sparse_moe": {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)},
    "mlp": {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)},
}


def seeded(seed: int) -> Callable[[nn.Module], WeightSource]:
    """Return a source of random weights for any model."""
    return lambda _: partial(fill, seed=seed)


def weights_of(config: TrainingConfig) -> Callable[[nn.Module], WeightSource]:
    """Return the function that gives a whole model its source of weights, called while the model has all its names.

    The function raises ConfigError where the checkpoint belongs to another model.
    """
    checkpoint = config.model.checkpoint
    of_model = partial(Pretrained, _stored(checkpoint), config.seed) if checkpoint else seeded(config.seed)
    return lambda model: _by_projection(of_model(model), rows_of(model))


def _by_projection(source: WeightSource, rows: Mapping[str, Mapping[str, int]]) -> WeightSource:
    """Return the source that fills each projection of a product under its own name."""

    def filled(name: str, tensor: torch.Tensor) -> None:
        for each, part in by_projection(name, tensor, rows).items():
            source(each, part)

    return filled


def weights_that_ran(config: TrainingConfig) -> dict[str, Any]:
    """Say, for what_ran, which weights training started from."""
    model = config.model.checkpoint
    return {"weights": f"pretrained, {_stored(model).digest}" if model else f"random, seed {config.seed}"}


def _stored(model: HfModel) -> Checkpoint:
    from llmexp.launchers.models.hub import folder_of  # not every engine's ranks have Hugging Face's packages

    return Checkpoint.read(folder_of(model.path, code=model.trust_remote_code))


class Pretrained:
    """A checkpoint that fits a model; adapters are seeded.

    It is read tensor by tensor, so that memory holds the model and one tensor.
    """

    def __init__(self, checkpoint: Checkpoint, seed: int, model: nn.Module) -> None:
        self._checkpoint, self._seed = checkpoint, seed
        shapes = _shapes(model)
        tied: dict[str, str] = getattr(model, "all_tied_weights_keys", {})
        self._stored_as = _stored_names([*shapes, *tied], checkpoint, f"{getattr(model, 'base_model_prefix', '')}.")
        for name, other in tied.items():
            _take_either(self._stored_as, name, other)
        stacks = {
            name: _matrices_of(name, shape[0], checkpoint.tensors) for name, shape in shapes.items() if len(shape) == 3
        }
        self._stacks = {name: matrices for name, matrices in stacks.items() if matrices}
        self._check(shapes, _ignored(model))

    def __call__(self, name: str, tensor: torch.Tensor) -> None:
        """Copy the stored values, converted to the tensor's dtype."""
        if any(part in name for part in PROGRAM_PRESETS):
            fill(name, tensor, self._seed)
            return
        with torch.no_grad():
            for expert, matrices in zip(tensor, self._stacks.get(name, ()), strict=False):
                expert.copy_(torch.cat([self._read(matrix) for matrix in matrices]))
            if name not in self._stacks:
                tensor.copy_(self._read(self._stored_as[name]))

    def _read(self, name: str) -> torch.Tensor:
        from safetensors import safe_open

        # The file is opened each time: an open file's pages would count as this rank's memory.
        with safe_open(self._checkpoint.tensors[name].shard, "pt") as shard:
            values: torch.Tensor = shard.get_tensor(name)
            return values

    def _check(self, shapes: dict[str, tuple[int, ...]], ignored: re.Pattern[str]) -> None:
        stored = self._checkpoint.tensors
        taken = {
            *self._stored_as.values(),
            *(matrix for stack in self._stacks.values() for matrices in stack for matrix in matrices),
        }
        found = {name: self._stored_shape(name) for name in shapes if name in self._stored_as or name in self._stacks}
        self._refuse("it lacks {}", [name for name in shapes if name not in found])
        surplus = [name for name in stored if name not in taken and not ignored.search(name)]
        self._refuse("it has {}, which the model of its config.json lacks", surplus)
        self._refuse(
            "its shapes differ from its config.json: {}",
            [f"{name} {list(shape)}" for name, shape in found.items() if shape != shapes[name]],
        )

    def _stored_shape(self, name: str) -> tuple[int, ...]:
        stored, stack = self._checkpoint.tensors, self._stacks.get(name)
        if stack is None:
            return stored[self._stored_as[name]].shape
        rows = sum(stored[matrix].shape[0] for matrix in stack[0])
        return len(stack), rows, *stored[stack[0][0]].shape[1:]

    def _refuse(self, reason: str, names: list[str]) -> None:
        if names:
            listed = ", ".join(names[:NAMED_IN_ERRORS]) + (
                f" and {len(names) - NAMED_IN_ERRORS} more" if len(names) > NAMED_IN_ERRORS else ""
            )
            raise ConfigError(f"model.path={self._checkpoint.folder}: {reason.format(listed)}")


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of parameters by name, of projections that are one product each its own."""
    fused = rows_of(model)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, each in model.named_parameters():
        shape = tuple(getattr(each, "ds_shape", each.shape))
        shapes |= {part: (rows, *shape[1:]) for part, rows in fused[name].items()} if name in fused else {name: shape}
    return shapes


def _stored_names(names: Iterable[str], checkpoint: Checkpoint, prefix: str) -> dict[str, str]:
    """Map each name to the checkpoint's.

    A checkpoint that was saved without the head lacks the base model's prefix.
    """
    candidates = {name: (name, name.removeprefix(prefix), _router_of(name)) for name in names}
    found = {
        name: next((each for each in possible if each in checkpoint.tensors), None)
        for name, possible in candidates.items()
    }
    return {name: stored for name, stored in found.items() if stored}


def _take_either(stored_as: dict[str, str], name: str, other: str) -> None:
    """Let tied parameters share one stored name: a checkpoint may hold only one of them."""
    for absent, present in ((name, other), (other, name)):
        if present in stored_as:
            stored_as.setdefault(absent, stored_as[present])


def _ignored(model: nn.Module) -> re.Pattern[str]:
    """Match names that checkpoints of this class hold without need.

    They are those that transformers ignores, and buffers, which are computed.
    """
    known: Iterator[str] = iter(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ())
    buffers = {name.rpartition(".")[2] for name, _ in model.named_buffers()}
    return re.compile(
        "|".join([*known, *(rf"\.{re.escape(name)}$" for name in sorted(buffers)), r"rotary_emb\.inv_freq$"])
    )


def _matrices_of(name: str, experts: int, stored: Container[str]) -> list[tuple[str, ...]]:
    """Return, for each expert of a stack, the stored matrices, whose rows follow each other in the stack.

    Returns an empty list where this is no stack, or where they are not stored.
    """
    found = _STACK.fullmatch(name)
    if not found:
        return []
    for layer, leaves in _NAMES.items():
        each = [
            tuple(f"{found[1]}.{layer}.experts.{expert}.{leaf}.weight" for leaf in leaves[found[2]])
            for expert in range(experts)
        ]
        if all(matrix in stored for matrices in each for matrix in matrices):
            return each
    return []


def _router_of(name: str) -> str:
    """Return Mixtral's own name for the matrix that chooses experts; other names stay."""
    return name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
