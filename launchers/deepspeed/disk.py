"""The optimizer's states on a disk, as Z3 of DeepSpeed 0.19 keeps them: what is in files, and what a run needs."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from llmexp.dtypes import bytes_of
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.method import Techniques
from llmexp.record.digits import GIB
from llmexp.record.filesystem import filesystem
from llmexp.record.plan import RunPlan
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.memory import OnDisk

KEY = "memory.optimizer_folder"
# The elements that are updated together, and so pass through memory together. DeepSpeed's default of 1e9 needs 16 GB.
SUB_GROUP_ELEMENTS = 100_000_000
# A buffer each for the copy of the parameters, both moments and the gradient.
BUFFERS = 4
# Files hold whole blocks, and nothing smaller than a request has a file (0.19.8, runtime/swap_tensor).
BLOCK_BYTES, SMALLEST_BYTES = 1024, 1 << 20
IN_MEMORY = ("tmpfs", "ramfs")


def disk_limit(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why the optimizer's states cannot be on a disk, or None."""
    if config.memory.optimizer_folder is None:
        return None
    precision, shape = config.precision, shape_of(config.model)
    why = {
        "O with Z3 keeps states there: add Z3+O to the method": not techniques.offload_parameters,
        "it has been tried without L, QL and P only: leave them out": techniques.adapter or techniques.quantization,
        f"it has been tried with optimizer=adamw only, not {config.optimizer.name}": config.optimizer.name != "adamw",
        f"master copy and moments must have one dtype, not {precision.master} and {precision.moments}": (
            precision.master != precision.moments
        ),
        "it has not been tried with parallelism.cp: set parallelism.cp=1": dims.cp > 1,
        f"it takes dense models like Llama, not model={config.model.name}": shape is None or shape.num_experts,
        f"ranks of runtime={config.runtime.name} are in a container, which does not show them the folder": (
            config.runtime.container
        ),
    }
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"{KEY}: {reason}" if reason else None


def on_disk(config: TrainingConfig, ranks: int) -> OnDisk | None:
    """Count a rank's files; None where there are none, or the model's matrices are not known."""
    shape = shape_of(config.model)
    if config.memory.optimizer_folder is None or shape is None or shape.num_experts:
        return None
    size, groups = bytes_of(config.precision.master), list(_groups(config, _sizes(shape), ranks))
    swapped = [group for group in groups if sum(group) * size >= SMALLEST_BYTES]
    resting = sum(sum(group) * size for group in groups if group not in swapped)
    parts = [part * size for group in swapped for part in group]
    # What a file cannot hold of a gradient is a part of its copy in the master's dtype, where that is a copy.
    kept = sum(part for part in parts if part < SMALLEST_BYTES or part % BLOCK_BYTES)
    copied = config.precision.master != config.precision.parameters
    return OnDisk(
        optimizer=3 * sum(_blocks(sum(group) * size) for group in swapped),
        gradients=sum(part // BLOCK_BYTES * BLOCK_BYTES for part in parts if part >= SMALLEST_BYTES),
        optimizer_on_host=3 * resting,
        gradients_on_host=resting + kept * copied,
        buffers=BUFFERS * _blocks(size * max(map(sum, groups))),
    )


def offload_optimizer(config: TrainingConfig) -> dict[str, object]:
    """Return DeepSpeed's section; a rank adds the path, which is its own."""
    pinned = config.hardware.device == "cuda"
    if config.memory.optimizer_folder is None:
        return {"device": "cpu", "pin_memory": pinned}
    return {"device": "nvme", "pin_memory": pinned, "buffer_count": BUFFERS}


def swap_folder(plan: RunPlan, run: Path) -> Path | None:
    """Return the folder of this run's files, its own even if another sweep measures the same; None where none are.

    `run` is the folder of the run's records.
    """
    config = plan.config
    folder = config.memory.optimizer_folder if isinstance(config, TrainingConfig) else None
    digest = hashlib.sha256(bytes(run.absolute())).hexdigest()[:8]
    return Path(folder).expanduser() / f"llmexp.{plan.id}.{digest}" if folder else None


def lacking_disk(plan: RunPlan) -> str | None:
    """Say why the run's files cannot be in their folder on this node, or None."""
    config = plan.config
    if not isinstance(config, TrainingConfig) or config.memory.optimizer_folder is None:
        return None
    folder = Path(config.memory.optimizer_folder).expanduser()
    if not folder.is_dir():
        return f"{KEY}={folder} is no folder on this node: create it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{KEY}={folder} is not writable: name a folder that is"
    if (kind := filesystem(folder)) in IN_MEMORY:
        return f"{KEY}={folder} is on {kind}, which is memory: name a folder on a disk"
    needed = plan.ranks_per_node * (plan.memory.disk if plan.memory else 0)
    free = shutil.disk_usage(folder).free
    if needed <= free:
        return None
    return (
        f"{KEY}={folder} has {free / GIB:.1f} GiB free, and the states need {needed / GIB:.1f} GiB: name another disk"
    )


def _groups(config: TrainingConfig, sizes: Sequence[int], ranks: int) -> Iterator[list[int]]:
    """Group a rank's parts of all parameters as `_create_fp16_sub_groups` does: each group ends when it is full."""
    full = config.engine.options.get("zero_optimization", {}).get("sub_group_size", SUB_GROUP_ELEMENTS)
    group: list[int] = []
    for size in sizes:
        group.append(-(-size // ranks))
        if sum(group) >= full:
            yield group
            group = []
    if group:
        yield group


def _sizes(shape: ModelShape) -> list[int]:
    """Return the numbers of elements of all parameters in the order in which transformers has them."""
    heads = [shape.head_dim] * (2 * shape.qk_norm)
    matrices = [inputs * outputs for inputs, outputs in shape.matrices.values()]
    layer = [*matrices[:4], *heads, *matrices[4:], shape.hidden_size, shape.hidden_size]
    head = [shape.head_parameters] * (not shape.tie_embeddings)
    return [shape.embedding_parameters, *layer * shape.num_layers, shape.hidden_size, *head]


def _blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
