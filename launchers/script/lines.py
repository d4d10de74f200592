"""Reads a program's output line by line as Python writes it, and what a line says of a step."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from llmexp.launchers.script.program_run import ReportError
from llmexp.record.printed import SHOWN
from llmexp.training.plan.training_plan import TrainingPlan

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_ENDS = re.compile(r"[\r\n]+")


class Lines:
    """Hands each line of standard output and error to `take`, before any buffer delays it.

    NativeLines reads what others write to the same files.
    """

    def __init__(self, take: Callable[[str], None]) -> None:
        self.read, self.last = 0, ""
        self._take, self._process, self._one_at_a_time = take, os.getpid(), threading.RLock()
        for stream in (sys.stdout, sys.stderr):
            self._tap(stream)

    def _tap(self, stream: TextIO) -> None:
        # The stream itself is changed, because libraries that were imported before keep a reference to it.
        write, begun = stream.write, ""

        def tapped(text: str, /) -> int:
            nonlocal begun
            written = write(text)
            *lines, begun = _ENDS.split(begun + text)
            for line in filter(None, lines):
                self.see(line)
            return written

        stream.write = tapped  # type: ignore[method-assign]

    def see(self, line: str) -> None:
        """Take a whole line, of this process alone, without its colors."""
        if os.getpid() != self._process:
            return
        plain = _COLORS.sub("", line)
        with self._one_at_a_time:
            self.read, self.last = self.read + 1, plain[: SHOWN + 1]
            self._take(plain)


class StepLines:
    """Decides which lines end a step, and checks them against the plan."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._expression = re.compile(plan.engine_config["line"])
        self._every_step = plan.engine_config["every_step"]
        self._samples, self._seq_len = plan.batch.global_, plan.config.data.seq_len
        self._earlier: float | None = None

    def __call__(self, line: str) -> dict[str, str] | None:
        """Return the line's groups, or None where it does not match."""
        found = self._expression.search(line)
        return {name: text for name, text in found.groupdict().items() if text is not None} if found else None

    def loss_of_new(self, told: dict[str, str]) -> float | None:
        """Return the loss of the step that a line reports, or None for a step that was reported before.

        Raises ReportError where the line skips a step, contradicts the plan or has no loss.
        """
        step = _number(told, "step")
        if step is not None and step == self._earlier:
            return None
        if step is not None and self._earlier is not None and step != self._earlier + 1:
            raise ReportError(
                f"the program printed step {step:g} after {self._earlier:g}, "
                f"but llmexp needs every step: set {self._every_step}"
            )
        self._earlier = step
        planned = {"samples": self._samples, "tokens": self._samples * self._seq_len}
        odd = next((name for name in planned if _number(told, name) not in (None, planned[name])), None)
        if odd:
            raise ReportError(
                f"the program printed {told[odd]} {odd} a step, but the configuration has {planned[odd]} "
                "over all ranks (batch, parallelism.dp, data.seq_len): set these to match the program, or pass them "
                "to it"
            )
        loss = _number(told, "loss")
        if loss is None:
            raise ReportError(
                "a line of the program matched engine.options.pattern without its group loss: "
                "do not make that group optional"
            )
        return loss


def _number(told: dict[str, str], name: str) -> float | None:
    text = told.get(name)
    try:
        return None if text is None else float(text.replace(",", ""))
    except ValueError:
        raise ReportError(
            f"the group {name} of engine.options.pattern matched {text!r} in a line of the program, not a number"
        ) from None
