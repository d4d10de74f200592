"""What the engines claim to do they do.

Every such cell of `llmexp engines`, on real gloo ranks, computes the training of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from planning import Measurement, make_plan

from llmexp.cli.arguments import run_parser
from llmexp.cli.overrides import as_typed
from llmexp.cli.words import jobs_of
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = pytest.mark.sweep

WORKER = "training_worker"
# The smallest in which every cell still differs from the next.
SMALL = (
    "data.seq_len=32",
    "model.hidden_size=64",
    "model.intermediate_size=96",
    "model.head_dim=16",
    "model.vocab_size=288",
)
FP32_TOLERANCE = 1e-5
BF16_TOLERANCE = 1e-2
# Over three steps; with tied embeddings the loss rises at first.
MOVES_BY = 0.005


def name_of(overrides: tuple[str, ...]) -> str:
    return " ".join(
        word for word in as_typed(list(overrides)) if word not in SMALL and not word.startswith("experiment=")
    )


@cache
def claimed() -> dict[str, TrainingPlan]:
    jobs = jobs_of(run_parser().parse_intermixed_args(["+experiment=capabilities", *SMALL]))
    return {name_of(job.overrides): job.plan for job in jobs if job.plan.skip is None}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cells are planned where they are tested: all that collect this file would wait for that."""
    metafunc.parametrize("name", claimed() if metafunc.config.option.markexpr in ("", "sweep") else [])


def one_process(plan: TrainingPlan) -> tuple[str, ...]:
    """Words for the same training on one rank of torch; of the atoms 4 bits and adapters alone are another training."""
    words = [word for word in plan.rerun_command.split() if word.lstrip("+").startswith("model.")]
    method = next((code for code in plan.method.split("+") if code in ("Q", "P", "L", "QL")), "Naive")
    model = [f"model={plan.config.model.name}", f"task={plan.config.task.name}", "data=text", f"method={method}"]
    return (
        "engine=torch",
        "hardware=cpu",
        "precision=fp32",
        "parallelism.dp=1",
        f"batch.accumulation={plan.batch.global_}",
        *SMALL,
        *words,
        *model,
    )


@pytest.fixture(scope="module")
def alone(observe: Callable[..., Measurement]) -> Callable[[TrainingPlan], list[float]]:
    found = observe(
        {str(abs(hash(words))): make_plan(*words) for words in {one_process(plan) for plan in claimed().values()}},
        1,
        WORKER,
    )
    return lambda plan: found[str(abs(hash(one_process(plan))))][0]


@pytest.fixture(scope="module")
def together(observe: Callable[..., Measurement]) -> Callable[[TrainingPlan], Measurement]:
    def run(engine: str, ranks: int) -> Measurement:
        plans = {
            plan.id: plan
            for plan in claimed().values()
            if (plan.config.engine.name, plan.dims.world_size) == (engine, ranks)
        }
        return observe(plans, ranks, WORKER)

    run = cache(run)
    return lambda plan: run(plan.config.engine.name, plan.dims.world_size)


def test_a_claimed_cell_computes_what_one_process_computes(alone, together, name: str) -> None:
    plan = claimed()[name]
    losses, one = together(plan)[plan.id][0], alone(plan)
    assert max(one) - min(one) > MOVES_BY
    assert losses == pytest.approx(one, abs=FP32_TOLERANCE if plan.config.precision.name == "fp32" else BF16_TOLERANCE)
