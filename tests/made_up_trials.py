"""Trials of a search whose runs never run: their losses follow from their learning rates.

As a program it is `llmexp` with such runs; made_up_trials.py FOLDER WORD ... notes each run that it begins in FOLDER.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

from llmexp.__main__ import main
from llmexp.launch.early_end import early_end
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import Metric, RunResult, RunStatus
from llmexp.record.samples import StepSample
from llmexp.sweep.search import searching

BEST_LR, SHARE = 1e-3, 0.9
# A driver with a file of this name in its folder begins a run and never ends it.
HANGS = "hangs"


def loss_after(plan: RunPlan, steps: int) -> float:
    """Each factor of ten beside the best learning rate costs a nat; all losses fall alike."""
    off = abs(math.log10(plan.config.optimizer.lr / BEST_LR))  # type: ignore[attr-defined]
    return 4 + off + SHARE**steps


class MadeUpRuns:
    """Stands in for measuring: it leaves a run's samples and its result, and notes the runs that it began."""

    def __init__(self, notes: Path) -> None:
        self.begun: list[str] = []
        self.statuses: dict[str, RunStatus] = {}
        self._notes = notes
        notes.mkdir(parents=True, exist_ok=True)

    def measure(self, plan: RunPlan, folder: RunFolder, began: str | None) -> bool:
        known = folder.result()
        if known is None or not known.status.is_answer:
            self.begun.append(folder.path.name)
            with (self._notes / folder.path.name).open("a") as file:
                file.write("begun\n")
            folder.write(folder.plan_path, plan)
            while (self._notes / HANGS).exists():
                time.sleep(0.01)
            self._run(plan, folder)
        return True

    def _run(self, plan: RunPlan, folder: RunFolder) -> None:
        repeat, why = folder.repeat(0), ""
        repeat.mkdir(parents=True, exist_ok=True)
        for step in range(plan.samples):
            sample = StepSample(
                index=step,
                warmup=False,
                t_start_s=step,
                t_end_s=step + 1,
                positions=1,
                real_tokens=1,
                loss=loss_after(plan, step + 1),
            )
            for rank in range(plan.processes):
                with (repeat / f"samples.{rank}.jsonl").open("a") as file:
                    file.write(sample.model_dump_json() + "\n")
            if ended := early_end(repeat):
                why = ended.reason
                break
        status = RunStatus.KILLED if why else self.statuses.get(str(plan.config.batch.micro), RunStatus.SUCCESS)
        folder.write(folder.result_path, self._result(plan, status, why))

    def _result(self, plan: RunPlan, status: RunStatus, why: str) -> RunResult:
        values = {"final_loss": loss_after(plan, plan.samples), "tokens_per_s": 100.0 * plan.config.batch.micro}
        metrics: dict[str, Metric | None] = {name: Metric(mean=value) for name, value in values.items()}
        names = {name: getattr(plan.config, name).name for name in ("task", "engine", "hardware", "sweep")}
        return RunResult(
            id=plan.id,
            stack="0123456789ab",
            status=status,
            reason=why,
            processes=plan.processes,
            devices=plan.devices,
            metrics=(metrics if status is RunStatus.SUCCESS else {}) | {"mfu": None},
            repeats=1,
            command=plan.rerun_command,
            **names,
            **plan.in_result,
        )


if __name__ == "__main__":
    searching.measure = MadeUpRuns(Path(sys.argv[1])).measure  # type: ignore[attr-defined]
    searching.leave_report = lambda *_: None  # type: ignore[attr-defined]
    sys.exit(main(sys.argv[2:]))
