"""Tensors without content: what torch and its libraries ask of content is answered here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import accelerate
import torch
from torch import distributed, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


def expect_no_content() -> None:
    """Replace what would look at the content of tensors; call it before a launcher is imported."""
    for owner, name, function in _WITHOUT_CONTENT:
        setattr(owner, name, function)


class _Answers(TorchDispatchMode):
    """Every number that code reads from a fake tensor is 0, every flag off and every count 1."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            kind = args[0].dtype
            return 0.0 if kind.is_floating_point else 0 if kind in (torch.bool, torch.uint8) else 1
        added = adds_in_place(func, args)
        return func(*args, **(kwargs or {})) if added is None else added


def adds_in_place(func: Callable[..., Any], args: Sequence[Any]) -> torch.Tensor | None:
    """Return the sum of two gradients of one tensor in the first one's memory; None for any other operator.

    Autograd adds so (torch/csrc/autograd/input_buffer.cpp), but not while operators are dispatched to Python.
    """
    if func is not torch.ops.aten.add.Tensor or torch._C._current_graph_task_id() == -1 or torch.is_grad_enabled():
        return None
    first, second = args
    alike = isinstance(second, FakeTensor) and first.shape == second.shape and first.dtype == second.dtype
    return first if alike and _autograd_asks() else None


def _autograd_asks() -> bool:
    """Tell whether no function in Python asks, such as the backward of one."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_name != "_engine_run_backward" and _dispatches(frame.f_globals["__name__"]):
        frame = frame.f_back
    return _dispatches(frame.f_globals["__name__"])


def _dispatches(module: str) -> bool:
    return module.split(".")[0] in ("torch", "living", "pretended") or module.startswith("llmexp.launchers.tracing.")


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Make every tensor a fake one; call it after a launcher is imported."""
    with FakeTensorMode(allow_non_fake_inputs=True), _Answers():
        yield


def be_alone() -> None:
    """Let DeepSpeed compile nothing, nor compare numbers with other ranks; call it after a launcher is imported."""
    if ops := sys.modules.get("llmexp.launchers.deepspeed.ops"):
        ops.use_built_ops()
    if coordinator := sys.modules.get("deepspeed.runtime.zero.partitioned_param_coordinator"):
        vars(coordinator)["assert_ints_same_as_other_ranks"] = lambda *_: None


def join(ranks: int) -> None:
    """Be rank 0 of a group whose other ranks do not exist: what they would send is never there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)


def with_content(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function make real tensors."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return call


def apply(module: nn.Module, change: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
    """Change a module's tensors as torch does it where tensors cannot be swapped; tied ones stay tied."""
    for child in module.children():
        child._apply(change)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            with torch.no_grad():
                new = change(parameter)
            if (new.device, new.dtype) != (parameter.device, parameter.dtype):
                tied = vars(parameter).setdefault("changed", nn.Parameter(new, requires_grad=parameter.requires_grad))
                module._parameters[name] = tied
    for name, buffer in module._buffers.items():
        module._buffers[name] = None if buffer is None else change(buffer)
    return module


@contextmanager
def empty_weights(*_: Any, **__: Any) -> Iterator[None]:
    """Make parameters on the meta device as accelerate does, which copies what a fake tensor says of its own."""
    real = nn.Module.register_parameter

    def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            empty = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
            parameter = nn.Parameter(empty, requires_grad=parameter.requires_grad)
        real(module, name, parameter)

    nn.Module.register_parameter = register  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = real  # type: ignore[method-assign]


class _Replicas(DistributedDataParallel):
    """DDP whose buckets are averaged by nobody, and stay as they are when it is built.

    A group that is not there answers DDP's own averaging with nothing, and DDP's other order of buckets with no order.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_comm_hook(None, _unchanged)
        self.reducer = _Reducer(self.reducer)  # type: ignore[assignment]


class _Reducer:
    """DDP's reducer without a new order of buckets; the buckets' bytes are the same in every order."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        return False


def _unchanged(_: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


# DDP compares annotations with types, and these are words.
_unchanged.__annotations__.clear()


_WITHOUT_CONTENT: tuple[tuple[Any, str, Any], ...] = (
    (torch.UntypedStorage, "data_ptr", lambda storage: storage._cdata),
    (nn.Module, "_apply", apply),
    (nn.parallel, "DistributedDataParallel", _Replicas),
    (accelerate, "init_empty_weights", empty_weights),
    # Which rank is where in a mesh is looked up in a tensor.
    (
        DeviceMesh,
        "_compute_coordinates_from_mesh",
        staticmethod(with_content(DeviceMesh._compute_coordinates_from_mesh)),
    ),
    (device_mesh, "init_device_mesh", with_content(device_mesh.init_device_mesh)),
)
