"""The program that traces the memory of a plan's rank: `python -m ... FOLDER` reads the plan in the folder.

It leaves `traced.json` there, or `failure.txt` with one line, and meanwhile `progress.txt`.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path

from llmexp.errors import LlmexpError, in_one_line
from llmexp.launchers.tracing import fakes
from llmexp.record.process import die_with_parent
from llmexp.record.result import to_json
from llmexp.record.writing import write_atomically
from llmexp.training.plan.traced_memory import TracedMemory
from llmexp.training.plan.training_plan import TrainingPlan


def main(folder: Path) -> int:
    """Trace the folder's plan; return the exit code."""
    die_with_parent()
    try:
        found = _trace(TrainingPlan.read(folder / "plan.json"), folder / "progress.txt")
    except Exception as error:
        traceback.print_exc()
        told = str(error) if isinstance(error, LlmexpError) else f"{type(error).__name__}: {error}"
        write_atomically(folder / "failure.txt", in_one_line(told) + "\n")
        return 1
    write_atomically(folder / "traced.json", to_json(found))
    return 0


def _trace(plan: TrainingPlan, progress: Path) -> TracedMemory:
    fakes.expect_no_content()
    launcher = importlib.import_module(plan.command.argv[-2])
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(plan.dims.world_size)}
    from llmexp.launchers.tracing.tracer import trace

    if plan.techniques.quantization:
        _quantize_without_content()
    fakes.be_alone()
    fakes.join(plan.dims.world_size)
    with fakes.fake_tensors():
        return trace(plan, launcher.build, lambda words: write_atomically(progress, words + "\n"))


def _quantize_without_content() -> None:
    from llmexp.launchers.models import building
    from llmexp.launchers.tracing.four_bit import FourBitLinear  # bitsandbytes is large, and only Q needs it

    vars(building)["quantized_linear"] = FourBitLinear


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
