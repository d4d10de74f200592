"""Every byte of tensors that lives in a rank at a time, whoever holds it.

An estimate or a count of training state is held against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch
from weakref import ref

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def tensors_in(found: Any) -> Iterator[torch.Tensor]:
    """Give the tensors in an operator's arguments or results; tree_leaves takes four times as long."""
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, (list, tuple)):
        for each in found:
            yield from tensors_in(each)
    elif isinstance(found, Mapping):
        yield from tensors_in(tuple(found.values()))


class Living(TorchDispatchMode):
    """While this is entered, it remembers the memory of each tensor that an operator is given or makes.

    It does not hold that memory. All are counted again only where they may be more than the peak.
    """

    def __init__(self, device: str | None = None) -> None:
        """Count what lives on devices of this type; by default on all that have memory."""
        super().__init__()
        self._device = device
        self._seen: dict[int, tuple[ref[torch.UntypedStorage], int]] = {}
        self._at_most = 0
        self._watching = patch.object(torch.UntypedStorage, "resize_", self._watched(torch.UntypedStorage.resize_))
        self.peak = 0
        """The largest total since this was last set."""

    def __enter__(self) -> Living:
        self._watching.start()
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._watching.stop()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        new = [self._see(tensor) for tensor in tensors_in((args, kwargs, made))]
        if self._at_most > self.peak and any(new):
            self.peak = max(self.peak, self.bytes())
        return made

    def bytes(self) -> int:
        """Of all that live now; memory without content, such as FSDP2 leaves of what it drops, has none."""
        held = {}
        total = 0
        for key, (known, _) in self._seen.items():
            if (storage := known()) is not None:
                size = storage.nbytes()
                held[key] = known, size
                total += size
        self._seen, self._at_most = held, total
        return total

    def _see(self, tensor: torch.Tensor) -> bool:
        part = getattr(tensor, "_local_tensor", tensor)
        if part.device.type != self._device if self._device else part.device.type == "meta":
            return False
        storage = part.untyped_storage()
        known, size = self._seen.get(id(storage), (None, 0))
        new = known is None or known() is not storage
        now = storage.nbytes()
        if new or now != size:
            self._at_most += now if new else max(now - size, 0)
            self._seen[id(storage)] = ref(storage), now
        return new

    def _watched(self, resize: Callable[..., Any]) -> Callable[..., Any]:
        """FSDP2 fills what it has emptied, which no operator shows."""

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            self._at_most += size
            return resize(storage, size)

        return resized
