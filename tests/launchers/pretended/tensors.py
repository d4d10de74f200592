"""Operators of fake tensors on the pretended GPU: their answers to the host, and the host's waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import accelerate
import torch
from living import tensors_in
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from llmexp.launchers.tracing.fakes import adds_in_place, apply, empty_weights, with_content
from pretended.answers import waited

OPERATORS: Counter[str] = Counter()
# Operators whose result is on the host, or has a shape that the host has to know.
_HOST = ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select")
_ATEN = torch.ops.aten
# One kernel on a GPU; a torch without CUDA would compute it in steps, each with a tensor of its own.
_KERNELS = torch.library.Library("aten", "IMPL")


class Answering(TorchDispatchMode):
    """Every number that the host reads from the device is 0, every flag off and every count 1."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, func._schema.name  # type: ignore[attr-defined]
        OPERATORS[name] += 1
        tensors = list(tensors_in((args, kwargs)))
        on_device = any(tensor.device.type == "cuda" for tensor in tensors)
        if on_device and (name in _HOST or _copies_and_waits(name, args, kwargs)):
            waited()
        if name == "aten::_local_scalar_dense" and isinstance(tensors[0], FakeTensor):
            return _number(tensors[0])
        for tensor in tensors:
            # A fake tensor keeps a small content that it was made of, and operators would compute with it.
            if isinstance(tensor, FakeTensor) and (on_device or name == "aten::_to_copy"):
                tensor.constant = None
        added = adds_in_place(func, args)
        return func(*args, **kwargs) if added is None else added


def _number(tensor: torch.Tensor) -> float:
    return 0.0 if tensor.is_floating_point() else 0 if tensor.dtype in (torch.bool, torch.uint8) else 1


def _copies_and_waits(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if name == "aten::copy_":
        places, goes_on = {args[0].device.type, args[1].device.type}, len(args) > 2 and args[2]
    elif name == "aten::_to_copy":
        places = {args[0].device.type, torch.device(kwargs.get("device") or args[0].device).type}
        goes_on = kwargs.get("non_blocking", False)
    else:
        return False
    return len(places) > 1 and not goes_on


def expect_no_content() -> None:
    """Replace what would look at the content of tensors; call it before a launcher is imported."""
    for module, name, function in _WITHOUT_CONTENT:
        setattr(module, name, function)
    _KERNELS.impl("silu_backward", lambda gradient, _: torch.empty_like(gradient), "CUDA")


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Make every tensor a fake one; call it after a launcher is imported, as modules may compile functions of torch."""
    with FakeTensorMode(allow_non_fake_inputs=True), Answering():
        # There is no device that torch.tensor could copy its numbers to.
        torch._C._set_only_lift_cpu_tensors(True)  # type: ignore[attr-defined]
        torch.tensor = _tensor
        yield


def _tensor(
    content: Any, *args: Any, device: Any = None, real: Callable[..., Any] = torch.tensor, **options: Any
) -> Any:
    fake = [leaf for leaf in tree_leaves(content) if isinstance(leaf, FakeTensor)]
    for tensor in fake:
        if tensor.device.type == "cuda":
            waited()
    made = real(tree_map(lambda leaf: _number(leaf) if isinstance(leaf, FakeTensor) else leaf, content), **options)
    return made if device is None else made.to(device)


def _attention(query: Any, key: Any, value: Any, *, is_causal: bool, scale: float | None, **_: Any) -> Any:
    """As torch would choose it on Hopper; its choice asks the real device."""
    if torch.backends.cuda.cudnn_sdp_enabled():
        return _ATEN._scaled_dot_product_cudnn_attention(query, key, value, None, True, 0.0, is_causal, scale=scale)[0]
    return _ATEN._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal, scale=scale)[0]


class _FusedRMSNorm(torch.autograd.Function):
    """One kernel, as torch has it on a GPU: backward keeps the input and each row's root. Without CUDA it has many."""

    @staticmethod
    def forward(ctx: Any, taken: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        root = taken.new_empty((*taken.shape[:-1], 1), dtype=torch.float32)
        ctx.save_for_backward(taken, gain, root)
        return torch.empty_like(taken)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        taken, gain, _ = ctx.saved_tensors
        return torch.empty_like(taken), torch.empty_like(gain)


def _rms_norm(taken: torch.Tensor, normalized_shape: Any, weight: torch.Tensor, eps: float | None = None) -> Any:
    return _FusedRMSNorm.apply(taken, weight)


_WITHOUT_CONTENT: tuple[tuple[Any, str, Any], ...] = (
    (torch.Tensor, "pin_memory", lambda tensor, *_: tensor.clone()),
    (torch.Tensor, "is_pinned", lambda *_: True),
    (torch.Tensor, "record_stream", lambda *_: None),
    (torch.UntypedStorage, "data_ptr", lambda storage: storage._cdata),
    (functional, "scaled_dot_product_attention", _attention),
    (functional, "rms_norm", _rms_norm),
    (nn.Module, "_apply", apply),
    (accelerate, "init_empty_weights", empty_weights),
    # Which rank is where in a mesh is looked up in a tensor on the host.
    (
        DeviceMesh,
        "_compute_coordinates_from_mesh",
        staticmethod(with_content(DeviceMesh._compute_coordinates_from_mesh)),
    ),
    (DeviceMesh, "_concatenate", staticmethod(with_content(DeviceMesh._concatenate))),
    (device_mesh, "init_device_mesh", with_content(device_mesh.init_device_mesh)),
)
