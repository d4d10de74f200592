"""What torch.cuda answers where the GPU is pretended: one NVIDIA H200, on which everything is done at once."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.cuda.nccl

DEVICE = torch.device("cuda", 0)
PROPERTIES = SimpleNamespace(
    **{"name": "NVIDIA H200", "total_memory": 143_771 * 2**20, "uuid": "0", "major": 9, "minor": 0},
    **{"L2_cache_size": 60 * 2**20, "multi_processor_count": 132, "is_integrated": False},
)
WAITS: Counter[str] = Counter()
"""How often the host waited for the device since this was last cleared, by the module whose code asked."""
_NOBODY = ("torch", "contextlib", "living", "pretended")


def waited() -> None:
    """Count a wait for the first module outside of torch that led here."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _NOBODY:
        frame = frame.f_back
    WAITS[frame.f_globals["__name__"]] += 1


class Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        self._at_s = 0.0

    def record(self, *_: Any) -> None:
        self._at_s = time.perf_counter()

    def elapsed_time(self, later: Event) -> float:
        return (later._at_s - self._at_s) * 1e3

    def query(self) -> bool:
        return True

    def wait(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        waited()


class Stream:
    cuda_stream, device = 0, DEVICE

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, *_: Any) -> None:
        pass

    wait_event = wait_stream

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def is_capturing(self) -> bool:
        return False

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        waited()


class Generator:
    """Of the device, whose random numbers nobody sees."""

    def get_state(self) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    def graphsafe_get_state(self) -> Generator:
        return self

    clone_state = graphsafe_get_state

    def set_state(self, *_: Any) -> None:
        pass

    graphsafe_set_state = manual_seed = set_state


def answer() -> None:
    """Give torch.cuda these answers for the rest of the process."""
    stream, real = Stream(), torch.Generator
    state = Generator().get_state()
    of_device = {
        "get_device_properties": PROPERTIES,
        "get_device_name": PROPERTIES.name,
        "get_device_capability": (PROPERTIES.major, PROPERTIES.minor),
        "mem_get_info": (PROPERTIES.total_memory, PROPERTIES.total_memory),
        "current_stream": stream,
        "default_stream": stream,
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "device_count": 1,
        "current_device": 0,
        "memory_stats": {"num_alloc_retries": 0},
        "get_rng_state": state,
        **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0),
        **dict.fromkeys(("set_device", "empty_cache", "reset_peak_memory_stats", "init", "_lazy_init"), None),
        **dict.fromkeys(("manual_seed", "manual_seed_all", "set_rng_state", "ipc_collect"), None),
    }
    for name, value in of_device.items():
        for module in (torch.cuda, torch.cuda.random, torch.cuda.memory):
            setattr(module, name, lambda *_, value=value, **__: value)
    for name, kind in {"Event": Event, "Stream": Stream}.items():
        setattr(torch.cuda, name, kind)
    for name in ("stream", "StreamContext", "device"):
        setattr(torch.cuda, name, lambda *_: nullcontext())
    torch.cuda.synchronize = lambda *_, **__: waited()
    torch.cuda.default_generators = (Generator(),)
    torch.version.cuda = "13.0"  # type: ignore[misc]
    torch.accelerator.current_stream = lambda *_: stream
    torch.cuda.nccl.version = lambda: (2, 28, 9)
    for name in ("range_push", "range_pop"):
        setattr(torch.cuda.nvtx, name, lambda *_, **__: 0)
    torch._C._cuda_getCurrentRawStream = lambda _: 0  # type: ignore[attr-defined]
    torch.Generator = type("Generator", (), {"__new__": lambda *_, **__: real("cpu")})  # type: ignore[misc]


def be_alone_in_groups() -> None:
    """Let collectives of objects answer with this rank's own; call it before a launcher is imported."""
    from torch import distributed
    from torch.distributed import distributed_c10d

    def gathered(found: list[Any], mine: Any, *_: Any, **__: Any) -> None:
        found[:] = [mine] * len(found)

    @contextmanager
    def one_by_one(*_: Any, **__: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(wait=lambda: None, append=lambda _: None, works=[])

    distributed.all_gather_object = gathered
    distributed.broadcast_object_list = lambda *_, **__: None
    for module in (distributed, distributed_c10d):
        module._coalescing_manager = one_by_one  # type: ignore[attr-defined]


def join(rank: int, ranks: int) -> None:
    """Be a rank of a group whose other ranks are pretended as well: what they would send is never there."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
