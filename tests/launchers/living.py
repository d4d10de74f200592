"""Every byte of tensors that lives in a rank at a time, whoever holds it.

An estimate or a count of training state is held against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Living(TorchDispatchMode):
    """While this is entered, it remembers the memory of each tensor that an operator is given or makes.

    It does not hold that memory.
    """

    def __init__(self, device: str | None = None) -> None:
        """Count what lives on devices of this type; by default on all that have memory."""
        super().__init__()
        self._device = device
        self._seen: dict[int, ref[torch.UntypedStorage]] = {}
        self.peak = 0
        """The largest total since this was last set."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        new = [self._see(leaf) for leaf in tree_leaves((args, kwargs, made)) if isinstance(leaf, torch.Tensor)]
        if any(new):
            self.peak = max(self.peak, self.bytes())
        return made

    def bytes(self) -> int:
        """Of all that live now; memory without content, such as FSDP2 leaves of what it drops, has none."""
        self._seen = {key: known for key, known in self._seen.items() if known() is not None}
        storages = [storage for known in self._seen.values() if (storage := known()) is not None]
        return sum(storage.nbytes() for storage in storages)

    def _see(self, tensor: torch.Tensor) -> bool:
        part = getattr(tensor, "_local_tensor", tensor)
        if part.device.type != self._device if self._device else part.device.type == "meta":
            return False
        storage = part.untyped_storage()
        known = self._seen.get(id(storage))
        self._seen[id(storage)] = ref(storage)
        return known is None or known() is not storage
