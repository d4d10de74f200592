"""Measure one planned run in a process of its own: `python -m llmexp.sweep.alone`, with the plan on standard input."""

from __future__ import annotations

import json
import sys

from llmexp.errors import LlmexpError
from llmexp.record.plan import RunPlan
from llmexp.record.process import die_with_parent
from llmexp.record.writing import now
from llmexp.sweep.measuring import folder_of, measure
from llmexp.sweep.share import wait_for_any


def main() -> int:
    """Measure the plan as a sweep does; return 0 where that met no error, whatever the run's own status."""
    die_with_parent()
    plan, began = RunPlan.of(json.load(sys.stdin)), now()
    folder = folder_of(plan)
    try:
        while not measure(plan, folder, began):
            wait_for_any({0: folder})
    except LlmexpError as error:
        print(f"llmexp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # the process that started this one got the interrupt too
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
