"""Lets megatron-core (0.15, 0.16) run without CUDA, which it does not support by itself.

Nothing changes where the rank has a GPU. Megatron allocates on device "cuda" by name and in pinned memory, asks
torch.cuda for the current device, and decides by `Tensor.type()` whether it can train a parameter. The functions
themselves are replaced. A TorchFunctionMode would not do: it is off in all that `backward` calls, above all in
recomputation, and it would run before every operator that is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from megatron.core.tensor_parallel import random
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher

CPU = torch.device("cpu")
_ALLOCATING = ("ones", "tensor", "zeros")


def let_megatron_run_on(device: torch.device) -> None:
    """Make Megatron's requests for CUDA use this process's CPU until the process ends.

    Call it before Megatron builds anything.
    """
    if device.type == "cuda":
        return
    for name in _ALLOCATING:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    _answer_for_cuda()
    _draw_from_the_cpu()
    _call_tensors_cuda()
    _keep_token_counts_here()


def _on_cpu(allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(allocate)
    def on_cpu(*args: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs.get("device") == "cuda":
            kwargs["device"] = CPU
        kwargs.pop("pin_memory", None)
        return allocate(*args, **kwargs)

    return on_cpu


def _answer_for_cuda() -> None:
    answers: dict[str, Any] = {
        "current_device": lambda: CPU,
        "synchronize": lambda device=None: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "manual_seed": torch.manual_seed,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


def _draw_from_the_cpu() -> None:
    """Make recomputation save and restore the CPU generator, which dropout draws from."""
    random._get_cuda_rng_state = lambda device=None, clone=False, graph_safe=False: torch.get_rng_state()
    random._set_cuda_rng_state = lambda new_state, device=-1, graph_safe=False: torch.set_rng_state(new_state)


def _call_tensors_cuda() -> None:
    """Name CPU types as CUDA types: Megatron's optimizers accept only torch.cuda.FloatTensor and BFloat16Tensor."""
    plain = torch.Tensor.type

    def named(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        found = plain(tensor, *args, **kwargs)
        return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) else found

    torch.Tensor.type = named  # type: ignore[method-assign, assignment]
    torch.Tensor.cuda = lambda tensor, *args, **kwargs: tensor  # type: ignore[method-assign]


def _keep_token_counts_here() -> None:
    """Convert the token counts of each rank's experts to numpy arrays, without a copy.

    On CUDA Megatron copies them to the host on a separate stream, as numpy arrays.
    """

    def as_arrays(dispatcher: Any, point: str, tokens_per_expert: torch.Tensor | None = None) -> torch.Tensor | None:
        for name in (
            ("input_splits", "output_splits", "output_splits_tp") if point == dispatcher.cuda_dtoh_point else ()
        ):
            splits = getattr(dispatcher, name)
            setattr(dispatcher, name, splits.numpy() if torch.is_tensor(splits) else splits)
        return tokens_per_expert

    MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = torch.cpu.Stream()
    MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = as_arrays
