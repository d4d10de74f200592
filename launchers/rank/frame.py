"""A rank's frame: where its output goes, who it is, and what it leaves behind when it ends or fails."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

import psutil

from llmexp.errors import NO_MEMORY, ServerError, ServerHungError, ServerNotReadyError
from llmexp.launchers.rank.communication import log_connections
from llmexp.launchers.rank.meeting import serve_store, take_leave
from llmexp.machine.accelerators.here import visible_gpus
from llmexp.record.folder import RunFolder
from llmexp.record.identity import process_identity
from llmexp.record.lock import end_with_holder
from llmexp.record.process import die_with_parent
from llmexp.record.result import to_json
from llmexp.record.samples import RankFailure, RankSummary
from llmexp.record.writing import write_atomically

if TYPE_CHECKING:
    import torch

    from llmexp.record.plan import RunPlan
    from llmexp.schema import HardwareConfig

P = TypeVar("P", bound="RunPlan")
# Ranks that wait for a peer are left to the driver, which sees whether anything goes on. NCCL's own ten minutes would
# end them while rank 0 writes a large model.
PEERS_TIMEOUT = timedelta(days=7)
# A torch whose NCCL hangs at random where the device is named (pytorch issue 153960).
HANGS_WITH_DEVICE = "2.7.0"


@dataclass(frozen=True)
class Rank:
    """This process among its peers, and the repeat's folder that it writes to."""

    index: int
    local_index: int
    world_size: int
    folder: Path

    @classmethod
    def from_environment(cls, folder: Path) -> Rank:
        """Read the variables that every launcher of ranks sets; without them, this process is the only rank."""
        told = os.environ.get
        return cls(int(told("RANK", 0)), int(told("LOCAL_RANK", 0)), int(told("WORLD_SIZE", 1)), folder)

    @property
    def samples_path(self) -> Path:
        """The file of this rank's samples, one line a step."""
        return self.folder / f"samples.{self.index}.jsonl"

    @property
    def log_path(self) -> Path:
        """The file of this process's output."""
        return self.folder / f"log.{self.index}.txt"

    def write(self, name: str, record: RankSummary | RankFailure) -> None:
        """Write rank.<r>.json or failure.<r>.json."""
        write_atomically(self.folder / f"{name}.{self.index}.json", to_json(record))

    def seconds_since_start(self) -> float:
        """Return the seconds since this interpreter was started."""
        return time.time() - psutil.Process().create_time()


def main(work: Callable[[P, Rank], RankSummary], plan_type: Callable[[], type[P]]) -> NoReturn:
    """Run `work` for the plan beside the repeat's folder, which the first argument names; never return.

    `plan_type` imports the plan's type, so that a failed import is reported as any other error.
    """
    rank = Rank.from_environment(Path(sys.argv[1]))
    die_with_parent()
    _log_to(rank.log_path)
    end_with_holder(RunFolder(rank.folder.parent).drivers)
    write_atomically(rank.folder / f"process.{rank.index}.json", json.dumps(process_identity()) + "\n")
    try:
        plan = plan_type().read(rank.folder.parent / "plan.json")
        if plan.config.hardware.device == "cuda" and rank.world_size > 1:
            log_connections(rank.folder)
        serve_store()
        rank.write("rank", work(plan, rank))
    except BaseException as error:
        fail(rank, error)
    leave(0)


def fail(rank: Rank, error: BaseException) -> NoReturn:
    """End this process with an account of the error, which is being handled."""
    traceback.print_exc()
    rank.write("failure", _failure(rank, error))
    leave(1)


def leave(code: int) -> NoReturn:
    """End this process without the interpreter's clean-up.

    A peer that hangs in a collective must not keep a broken rank from ending.
    """
    if code == 0:
        take_leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _log_to(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _failure(rank: Rank, error: BaseException) -> RankFailure:
    message = f"{type(error).__name__}: {error}".splitlines()[0]
    return RankFailure(
        rank=rank.index, kind=_kind(error), message=message, traceback=traceback.format_exc(), allocator=_allocator()
    )


def _kind(error: BaseException) -> Literal["oom", "hardware", "timeout", "error"]:
    if isinstance(error, WrongHardwareError):
        return "hardware"
    if _is_out_of_memory(error):
        return "oom"
    return "timeout" if isinstance(error, ServerHungError | ServerNotReadyError) else "error"


def _is_out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    if isinstance(error, ServerError):
        return error.is_out_of_memory
    return isinstance(error, RuntimeError) and bool(NO_MEMORY.search(str(error)))


def _allocator() -> dict[str, int]:
    if "torch" not in sys.modules:
        return {}
    from llmexp.measure.memory import allocator_figures

    return allocator_figures()


class WrongHardwareError(RuntimeError):
    """An error: the node lacks the hardware that the plan was made for."""


def device_of(hardware: HardwareConfig, local_index: int) -> torch.device:
    """Return the plan's device for this rank, made current, and limited to hardware.memory_limit_bytes.

    Raises WrongHardwareError where torch cannot use it, or where it has less memory than the limit.
    """
    import torch

    if hardware.device == "cpu":
        if hardware.memory_limit_bytes:
            # What libraries hold would be no part of a device's memory, and differs between their versions.
            _limit_data(psutil.Process().memory_info().data + hardware.memory_limit_bytes)
        return torch.device("cpu")
    usable = torch.cuda.device_count()
    if local_index >= usable:
        raise WrongHardwareError(
            f"hardware={hardware.name} needs GPU {local_index}; torch {torch.__version__} can use {usable} here"
        )
    device = torch.device("cuda", local_index)
    torch.cuda.set_device(device)
    if hardware.memory_limit_bytes:
        memory_bytes = torch.cuda.get_device_properties(device).total_memory
        if hardware.memory_limit_bytes > memory_bytes:
            raise WrongHardwareError(
                f"hardware.memory_limit_bytes={hardware.memory_limit_bytes}; the GPU has {memory_bytes} bytes"
            )
        torch.cuda.set_per_process_memory_fraction(hardware.memory_limit_bytes / memory_bytes, device)
    return device


def lift_memory_limit() -> None:
    """Let a cpu rank's data grow again, for what is no part of the training, such as the profiler's buffers."""
    _limit_data(resource.getrlimit(resource.RLIMIT_DATA)[1])


def _limit_data(limit_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def gpu_uuid(device: torch.device) -> str | None:
    """Return what the library of its sensors calls the device; None for a processor or where that is not known."""
    import torch

    if device.type != "cuda":
        return None
    if torch.version.hip:
        # ROCm gives torch another UUID than its management library.
        seen = visible_gpus()
        index = device.index or 0
        return seen[index].uuid if index < len(seen) else None
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def join_group(device: torch.device) -> None:
    """Meet the other ranks with torch.distributed, over NCCL on GPUs and over Gloo on CPUs."""
    import torch
    from torch import distributed

    on_gpu = device.type == "cuda"
    named = on_gpu and not torch.__version__.startswith(HANGS_WITH_DEVICE)
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo", device_id=device if named else None, timeout=PEERS_TIMEOUT
    )
