"""Saves a run's weights after everything is measured: adapter/ in PEFT's format, model/ in transformers'."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn
from torch.distributed.tensor import DTensor

from llmexp.errors import RecordError
from llmexp.inputs.byte_tokens import BYTES
from llmexp.launchers.data.tokenizers import save_bytes
from llmexp.launchers.models import assembly
from llmexp.launchers.models.building import named_weights, transformer
from llmexp.launchers.models.fused_projections import by_projection, rows_of
from llmexp.launchers.rank.frame import Rank
from llmexp.measure.dtypes import torch_dtype
from llmexp.schema import HfModel, ModelConfig
from llmexp.training.plan.artifacts import Kept, kept_tokenizer
from llmexp.training.plan.training_plan import TrainingPlan

SHARD_SIZE = "5GB"
TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "generation_config.json",
)
ADAPTER_NAME = ".default"
State = dict[str, torch.Tensor]


class Saving:
    """The weights of one run: every rank takes part in gathering them, the first one writes.

    A rank may leave once it has taken part.
    """

    def __init__(self, plan: TrainingPlan, rank: Rank, model: Any, device: torch.device) -> None:
        self._plan, self._rank, self._model, self._device = plan, rank, model, device
        self._dtype = torch_dtype(plan.config.precision.parameters)

    def save(self, kept: Sequence[Kept]) -> dict[str, Any]:
        """Save these in the repeat's folder, and return what_ran's entry.

        Raises RecordError where one cannot be written.
        """
        writers: dict[Kept, Callable[[Path], None]] = {"adapter": self._adapter, "model": self._whole_model}
        for name in kept:
            self._by_rename(self._rank.folder / name, writers[name])
        return {"saved": [f"{self._rank.folder.name}/{name}" for name in kept]}

    def _by_rename(self, folder: Path, write: Callable[[Path], None]) -> None:
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        try:
            write(unfinished)
            if self._writes:
                _as_readable_as_other_files(unfinished)
                unfinished.rename(folder)
        except (OSError, SafetensorError) as error:
            raise RecordError(f"{folder} could not be saved: {error}; the measured steps are in the samples") from error

    @property
    def _writes(self) -> bool:
        return self._rank.index == 0

    def _adapter(self, folder: Path) -> None:
        state: State = {}
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad:
                with whole([parameter], self._device) as (values,):
                    self._keep(state, _name_in_adapter(name), values)
        if self._writes:
            folder.mkdir(parents=True, exist_ok=True)
            save_file(state, folder / "adapter_model.safetensors", {"format": "pt"})
            configuration = self._model.peft_config["default"]
            configuration.base_model_name_or_path = base_of(self._plan.config.model)
            configuration.inference_mode = True
            configuration.save_pretrained(folder)

    def _whole_model(self, folder: Path) -> None:
        state = self._merged()
        if self._writes:
            with init_empty_weights(include_buffers=False):
                empty = assembly.saved_model(self._plan, self._device)
            empty.save_pretrained(folder, state_dict=state, max_shard_size=SHARD_SIZE)
            _keep_tokenizer(kept_tokenizer(self._plan.config), folder, empty.config.vocab_size)

    def _merged(self) -> State:
        """Return all weights on the first rank's host, with 4-bit ones widened and LoRA's B A added."""
        weights, state, rows = dict(named_weights(self._model)), State(), rows_of(self._model)
        for name, parameter in weights.items():
            if ".lora_" in name:
                continue
            layer = name.removesuffix(".weight")
            low_rank = [
                weights[side]
                for side in (f"{layer}.lora_A{ADAPTER_NAME}.weight", f"{layer}.lora_B{ADAPTER_NAME}.weight")
                if side in weights
            ]
            with whole([parameter, *low_rank], self._device) as (values, *factors):
                if self._writes:
                    base = _widened(parameter, values)
                    made = base + self._added(layer, base, *factors) if factors else base
                    for each, part in by_projection(name, made, rows).items():
                        self._keep(state, each, part)
        return state

    def _added(self, layer: str, base: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        adapted = transformer(self._model).get_submodule(layer)
        product = (high.float() @ low.float()) * adapted.scaling["default"]
        return (product.T if adapted.fan_in_fan_out else product).to(base.device)

    def _keep(self, state: State, name: str, values: torch.Tensor) -> None:
        if self._writes:
            state[name] = values.detach().to("cpu", self._dtype, copy=True).contiguous()


def _name_in_adapter(name: str) -> str:
    """Return PEFT's name of a saved parameter, without the name of the adapter."""
    return "prompt_embeddings" if name.startswith("prompt_encoder.") else name.replace(f"{ADAPTER_NAME}.", ".")


def _widened(parameter: Any, values: torch.Tensor) -> torch.Tensor:
    quantized = getattr(parameter, "quant_state", None)
    if quantized is None:
        return values.float()
    from bitsandbytes.functional import dequantize_4bit  # large, and only Q and QL need it

    return dequantize_4bit(values, quantized).float()


def base_of(model: ModelConfig) -> str | None:
    """Return the model below an adapter as PEFT looks for it: a folder by its whole path, or the hub's name."""
    if not isinstance(model, HfModel):
        return None
    local = Path(model.path).expanduser()
    return str(local.resolve()) if local.is_dir() else model.path


def _keep_tokenizer(source: str, folder: Path, vocab_size: int) -> None:
    if source == BYTES:
        save_bytes(folder, vocab_size)
    if source in ("", BYTES):
        return
    from llmexp.launchers.models.hub import folder_of

    found = folder_of(source)
    for path in (path for pattern in TOKENIZER_FILES for path in found.glob(pattern)):
        shutil.copy(path, folder)


def _as_readable_as_other_files(folder: Path) -> None:
    """Give files the permissions of the umask: safetensors leaves them to their owner alone."""
    os.umask(umask := os.umask(0o077))
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o666 & ~umask)


@contextmanager
def whole(parameters: Sequence[nn.Parameter], device: torch.device) -> Iterator[list[torch.Tensor]]:
    """Give every rank all of these parameters inside the context, which all ranks enter together.

    Partitioned ones are gathered on `device`.
    """
    if any(hasattr(parameter, "ds_id") for parameter in parameters):
        import deepspeed  # ZeRO-3 is what has made them so

        with deepspeed.zero.GatheredParameters(list(parameters)):
            yield [parameter.data for parameter in parameters]
    else:
        yield [_whole(parameter.detach(), device) for parameter in parameters]


def _whole(held: torch.Tensor, device: torch.device) -> torch.Tensor:
    if not isinstance(held, DTensor):
        return held
    part: Any = held.to(device)  # still a DTensor
    gathered: torch.Tensor = part.full_tensor()
    return gathered
