"""Every byte of tensors that is made and freed in a rank, in order, with what it is used for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch
from weakref import ref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ENGINES = ("torch.distributed", "torch.nn.parallel", "deepspeed")
# Code that stands between the code that asks for memory and this file.
_BETWEEN = ("torch._", "torch.utils", "torch.overrides", "torch.autograd.grad_mode", "torch.functional", __name__)


@dataclass(frozen=True)
class Change:
    """One more or one less: memory by its number in the order of making, and bytes."""

    memory: int
    bytes: int


class Ledger(TorchDispatchMode):
    """While this is entered, it lists the memory of each tensor that an operator is given or makes.

    It does not hold that memory. A part is given to memory afterwards: what a gradient will be used for shows late.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Change] = []
        self.parts: dict[int, str] = {}
        """What was said of a number."""
        self.engines: set[int] = set()
        """The numbers of memory that a wrapper has asked for."""
        self._numbers: dict[int, tuple[ref[torch.UntypedStorage], int]] = {}
        self._sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, made)):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf)
        return made

    def label(self, part: str, tensors: Iterable[torch.Tensor]) -> None:
        """Say what these tensors are used for; what was said first holds."""
        for tensor in tensors:
            if (number := self._see(tensor)) is not None:
                self.parts.setdefault(number, part)

    @contextmanager
    def resizes(self) -> Iterator[None]:
        """Also list memory that is emptied and filled again in place, which no operator shows."""
        resize, ledger = torch.UntypedStorage.resize_, self

        def listed(storage: torch.UntypedStorage, size: int) -> None:
            resize(storage, size)
            known = ledger._numbers.get(id(storage))
            if known and known[0]() is storage:
                ledger._change(known[1], storage.nbytes())

        with patch.object(torch.UntypedStorage, "resize_", listed):
            yield

    @property
    def made(self) -> int:
        """How many numbers there are."""
        return len(self._sizes)

    def living(self) -> set[int]:
        """Return the numbers of what lives now."""
        return {number for known, number in self._numbers.values() if known() is not None}

    def _see(self, tensor: torch.Tensor) -> int | None:
        own = getattr(tensor, "_local_tensor", tensor)
        if own.device.type == "meta":
            return None
        storage = own.untyped_storage()
        known = self._numbers.get(id(storage))
        number = known[1] if known and known[0]() is storage else self._new(storage)
        self._change(number, storage.nbytes())
        return number

    def _new(self, storage: torch.UntypedStorage) -> int:
        number, key = len(self._sizes), id(storage)

        def gone(_: Any) -> None:
            self._change(number, 0)
            if (known := self._numbers.get(key)) and known[1] == number:
                del self._numbers[key]

        self._numbers[key] = (ref(storage, gone), number)
        self._sizes.append(0)
        if _asked_by_engine():
            self.engines.add(number)
        self._change(number, storage.nbytes())
        return number

    def _change(self, number: int, size: int) -> None:
        if size != self._sizes[number]:
            self.changes.append(Change(number, size - self._sizes[number]))
            self._sizes[number] = size


def _asked_by_engine() -> bool:
    """Tell whether the code that asked for memory is a wrapper's, not the model's, the loss's or an optimizer's."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith(ENGINES)
