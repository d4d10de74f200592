"""The replicas that train together: torchft's, which shrinks and grows, and torch's, which dies with any of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from llmexp.launchers.rank.frame import join_group
from llmexp.launchers.torchft.lives import LIGHTHOUSE, LOOPBACK
from llmexp.launchers.torchft.loopback_store import served_store

State = dict[str, Any]
# A peer that has died is seen by its closed connection; this is for one that hangs.
PATIENCE = timedelta(minutes=10)
# Buffers are equal on all replicas and never change, and weights are seeded alike.
_PLAIN: dict[str, Any] = {"gradient_as_bucket_view": True, "broadcast_buffers": False, "init_sync": False}


class ReplicaGroup(Protocol):
    """The replicas of one step."""

    backend: str
    replicas: int
    """How many took part in the last step; 0 where it was not committed."""
    healed: bool
    """The last step gave this replica another one's weights."""

    @property
    def step(self) -> int:
        """The number of steps committed so far."""

    def wrapped(self, module: nn.Module) -> DistributedDataParallel:
        """Return the module with gradients that backward averages over the group."""

    def begin(self) -> None:
        """Begin a step."""

    def await_members(self) -> None:
        """Wait until it is settled which replicas take part in the step."""

    def commits(self) -> bool:
        """End a step's passes; tell whether its update counts. Then `step` has grown."""

    def leave(self) -> None:
        """Leave the group, after the last step."""


class FixedGroup:
    """torch's process group: all replicas or none."""

    healed = False

    def __init__(self, size: int, device: torch.device) -> None:
        join_group(device)
        self._device = device
        self.backend, self.replicas, self.step = str(distributed.get_backend()), size, 0

    def wrapped(self, module: nn.Module) -> DistributedDataParallel:
        """Return the module in torch's DDP."""
        ids = [self._device] if self._device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=ids, **_PLAIN)

    def begin(self) -> None:
        """Do nothing: all replicas take part."""

    def await_members(self) -> None:
        """Return at once: all replicas take part."""

    def commits(self) -> bool:
        """Commit every step that gets so far."""
        self.step += 1
        return True

    def leave(self) -> None:
        """Wait for the others, so that none is left in a collective."""
        distributed.barrier()


class HealingGroup:
    """torchft's group: a new quorum in every step, of those that the lighthouse has heard of lately."""

    def __init__(self, place: tuple[int, int], device: torch.device, give: Callable[[], State], take: Any) -> None:
        # torchft takes seconds to import, and recovery=restart does without it.
        import torchft

        from llmexp.launchers.torchft.loopback_servers import manager_on_loopback

        rank, size = place
        on_gpu = device.type == "cuda"
        self.backend = "torchft-nccl" if on_gpu else "torchft-gloo"
        self.replicas, self.healed, self._size, self._take = 0, False, size, take
        self._store, port = served_store()
        self._manager = manager_on_loopback(
            PATIENCE,
            pg=(torchft.ProcessGroupNCCL if on_gpu else torchft.ProcessGroupGloo)(timeout=PATIENCE),
            load_state_dict=self._heal,
            state_dict=give,
            min_replica_size=1,
            quorum_timeout=PATIENCE,
            rank=0,
            world_size=1,
            store_addr=LOOPBACK,
            store_port=port,
            lighthouse_addr=os.environ[LIGHTHOUSE],
            replica_id=f"replica_{rank}",
            init_sync=False,
        )

    def meet(self) -> None:
        """Wait for all replicas, before the first step of all."""
        while self._manager.num_participants() < self._size:
            self._manager.start_quorum()

    @property
    def step(self) -> int:
        """The number of steps committed so far, as torchft counts: healing makes it jump."""
        return int(self._manager.current_step())

    def wrapped(self, module: nn.Module) -> DistributedDataParallel:
        """Return the module in a DDP of one, whose hook averages each bucket over the quorum.

        That of torchft 0.2 fails itself where a peer is gone: it expects a future that a failed call never makes. Its
        arguments are the same: while unused parameters are looked for, buckets stay as they are on all replicas.
        """
        from torchft.process_group import ProcessGroupDummy

        alone = ProcessGroupDummy(0, 1)
        wrapped = DistributedDataParallel(module, process_group=alone, find_unused_parameters=True, **_PLAIN)
        # DDP refuses a hook whose annotations are strings, as those of this file are.
        wrapped.register_comm_hook(self._manager, lambda manager, bucket: _averaged(manager, bucket))
        return wrapped

    def begin(self) -> None:
        """Ask for a quorum, which is awaited before gradients are averaged."""
        self.healed = False
        self._manager.start_quorum()

    def await_members(self) -> None:
        """Wait for the quorum."""
        self._manager.wait_quorum()

    def commits(self) -> bool:
        """Take another replica's weights where this one is behind; tell whether no replica was lost meanwhile."""
        committed = bool(self._manager.should_commit())
        self.replicas = self._manager.num_participants() if committed else 0
        return committed

    def leave(self) -> None:
        """Tell the lighthouse no more."""
        self._manager.shutdown(wait=False)

    def _heal(self, state: State) -> None:
        self._take(state)
        self.healed = True


def _averaged(manager: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket over the quorum; torchft keeps an error to itself until the step is to be committed."""
    manager.allreduce(bucket.buffer()).wait()
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
