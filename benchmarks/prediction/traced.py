"""The plan's formula of a rank's memory beside the rank's own code, traced at real size.

`python -m benchmarks.prediction.traced` prints each run. docs/results/verdicts.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.figure import Figure
from benchmarks.prediction.errors import of_errors
from benchmarks.rates import rate
from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.record.digits import GIB
from llmexp.training.plan.fit import activations_of, fit_of
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.traced_memory import trace_memory

_PURE, _MIXED, _ALONE = "precision=bf16_pure", "precision=bf16_mixed", "parallelism.dp=1"
# States, activations and buffers decide, each on its own, and experts. Where Z shards there are 8 ranks.
RUNS: tuple[str, ...] = (
    f"engine=torch model=7b method=Naive batch.micro=4 {_PURE} {_ALONE}",
    f"engine=torch model=7b method=F batch.micro=4 {_PURE} {_ALONE}",
    f"engine=torch model=7b method=R batch.micro=4 {_PURE} {_ALONE}",
    f"engine=torch model=7b method=Z1 batch.micro=1 {_MIXED}",
    f"engine=torch model=7b method=Z2 batch.micro=4 {_MIXED}",
    f"engine=torch model=7b method=Z3 batch.micro=4 {_MIXED}",
    f"engine=torch model=7b method=F+R+Z3 batch.micro=2 {_MIXED}",
    f"engine=torch model=13b method=Naive batch.micro=1 {_PURE} {_ALONE}",
    f"engine=torch model=13b method=F+R+Z3 batch.micro=4 {_MIXED}",
    f"engine=torch model=7b task=finetune method=L batch.micro=4 {_PURE} {_ALONE}",
    f"engine=torch model=13b task=finetune method=L+F batch.micro=1 {_PURE} {_ALONE}",
    f"engine=torch model=llama3-8b method=F batch.micro=2 data.seq_len=4096 {_PURE} {_ALONE}",
    f"engine=torch model=qwen3-8b method=F+R+Z3 data.seq_len=4096 {_MIXED}",
    f"engine=torch model=qwen3-8b method=F+R+Z3 data.seq_len=4096 {_PURE}",
    f"engine=torch model=mixtral method=F {_PURE}",
    f"engine=deepspeed model=7b method=Z1 {_PURE}",
    f"engine=deepspeed model=7b method=Z2 batch.micro=4 {_MIXED}",
    f"engine=deepspeed model=7b method=F+R+Z3 batch.micro=2 {_MIXED}",
)
_ALL = ("hardware=a800", "data=synthetic")
# In percent, the median and the 95th percentile; and what each run may be off by, as a share.
LIMITS, WITHIN = (3.0, 8.0), 0.05


@dataclass(frozen=True)
class Traced:
    """The bytes of a rank's tensors, traced and by the plan's formula: kept for backward, and the most at one time."""

    words: str
    kept: tuple[int, int]
    peak: tuple[int, int]

    @property
    def error(self) -> float:
        """The error of the formula's peak as a share of what was traced."""
        return self.peak[1] / self.peak[0] - 1


def traced() -> Iterator[Traced]:
    """Trace each run, which takes some seconds to a minute each."""
    for words in RUNS:
        (job,) = jobs_of(run_parser().parse_intermixed_args([*words.split(), *_ALL]))
        assert isinstance(job.plan, TrainingPlan)
        micro, step = job.plan.batch.micro, trace_memory(job.plan).steps[1]
        fit, computing = fit_of(job.plan, micro), activations_of(job.plan, micro)
        assert fit is not None
        assert computing is not None
        kept, peak = step.forward_end.activations, step.peak.together
        yield Traced(words, (kept, computing.kept), (peak, fit.tensors))


def traced_figures() -> Iterator[Figure]:
    """Yield the errors over all runs, and how many are within a twentieth."""
    off = np.array([abs(one.error) for one in traced()])
    yield of_errors("median error of memory, ranks traced at real size", off, np.median, LIMITS[0])
    yield of_errors(
        "95th percentile of memory, ranks traced at real size", off, lambda off: np.quantile(off, 0.95), LIMITS[1]
    )
    yield rate(f"traced ranks within {WITHIN:.0%} of the formula", int((off <= WITHIN).sum()), len(off))


def main() -> None:
    """Print each run, in GiB: what is kept and the peak, traced and by the formula, and the peak's error."""
    for one in traced():
        print(*(f"{size / GIB:8.2f}" for size in (*one.kept, *one.peak)), f"{one.error:+6.1%}  {one.words}", flush=True)


if __name__ == "__main__":
    main()
