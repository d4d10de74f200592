"""Every optimizer of conf/optimizer on ranks: what it keeps of a parameter is what its file declares.

Its training is that of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

WORKER = "optimizers_worker"
CONF = Path(__file__).parents[3] / "conf" / "optimizer"
# DeepSpeed's own AdamW is compiled, and tests/launchers/deepspeed/test_compiled_ops.py has it.
OPTIMIZERS = sorted(path.stem for path in CONF.glob("*.yaml") if not path.stem.startswith(("deepspeed_", "adamw_")))
ENGINES = ["torch", "deepspeed"]
# Whole and in partitions; the others are run by make test-sweeps.
METHODS = {"torch": ["Naive"], "deepspeed": ["Z2"]}
DECAYED = {"torch": ["Naive", "Z1"], "deepspeed": ["Naive", "Z2"]}
GRID = ["Naive", "F", "R", "Z1", "Z2", "Z3", "Z2+O", "Z3+O"]
# With which four steps change the loss.
LEARNING_RATES = {"sgd": 0.05, "lomo": 0.05, "adalomo": 0.01, "lion": 1e-4, "lion8bit": 1e-4}
IN_BACKWARD = ["lomo", "adalomo"]
TOLERANCE = 1e-5
# Where a matrix's gradients have not spanned all directions yet, its eigenvectors are those of rounding. So ranks are
# compared with as many passes, whose gradients round alike; those of one pass gave losses that differ by 0.02.
EIGENBASES = ["soap"]
IN_PASSES = ("parallelism.dp=1", "batch.accumulation=2")
# Partitions of several matrices have their blocks of 256 elsewhere.
TOLERANCE_8BIT = 2e-3
# Muon multiplies in bf16.
TOLERANCE_MUON = 1e-4
# A tenth of each weight a step.
DECAY = ("precision=bf16_mixed", "optimizer.lr=1e-3", "optimizer.weight_decay=100.0")
DECAY_TOLERANCE = 2e-3

Cell = tuple[str, str, str]


def plan(engine: str, optimizer: str, method: str = "Naive", *overrides: str) -> TrainingPlan:
    lr = [f"optimizer.lr={LEARNING_RATES[optimizer]}"] if optimizer in LEARNING_RATES else []
    words = (
        "hardware=cpu",
        "parallelism.dp=2",
        "data.seq_len=32",
        "precision=fp32",
        f"engine={engine}",
        f"optimizer={optimizer}",
    )
    return make_plan(*words, f"method={method}", *lr, *overrides)


def cells(engine: str, methods: list[str]) -> list[Cell]:
    return [
        (engine, name, method) for name in OPTIMIZERS for method in methods if plan(engine, name, method).skip is None
    ]


# They update within backward, or need whole matrices.
NOT_IN_PARTITIONS = [("deepspeed", name, "Z2") for name in ("adafactor", "adalomo", "lomo", "muon", "soap")]
CELLS = [
    (engine, name, method)
    for engine in ENGINES
    for name in OPTIMIZERS
    for method in METHODS[engine]
    if (engine, name, method) not in NOT_IN_PARTITIONS
]
each_cell = pytest.mark.parametrize(("engine", "optimizer", "method"), CELLS)


@cache
def rest_of_cells() -> list[Cell]:
    return [cell for engine in ENGINES for cell in cells(engine, GRID) if cell not in CELLS]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The rest is planned where it is tested: all that collect this file would wait for that."""
    if metafunc.function is test_every_other_method_does_the_same_training_with_its_share_of_the_state:
        wanted = metafunc.config.option.markexpr in ("", "sweep")
        metafunc.parametrize(("engine", "optimizer", "method"), rest_of_cells() if wanted else [])


@pytest.fixture(scope="module")
def together(observe: Callable[..., Measurement]) -> Callable[..., Measurement]:
    def run(engine: str, *, rest: bool = False) -> Measurement:
        wanted = [cell for cell in (rest_of_cells() if rest else CELLS) if cell[0] == engine]
        plans = {f"{name} {method}": plan(engine, name, method) for _, name, method in wanted}
        return observe(
            plans | {f"decay {method}": plan(engine, "adamw", method, *DECAY) for method in DECAYED[engine]}, 2, WORKER
        )

    return cache(run)


@pytest.fixture(scope="module")
def alone(observe: Callable[..., Measurement]) -> Callable[[], Measurement]:
    """One process on the sequences of both ranks."""
    words = ("parallelism.dp=1", "batch.micro=2")
    plans = {name: plan("torch", name, "Naive", *words) for name in OPTIMIZERS}
    plans |= {f"{name} in passes": plan("torch", name, "Naive", *IN_PASSES) for name in EIGENBASES}
    return cache(
        lambda: observe(plans | {"still": plan("torch", "adamw", "Naive", *words, "optimizer.lr=0.0")}, 1, WORKER)
    )


def tolerance(optimizer: str) -> float:
    return TOLERANCE_8BIT if "8bit" in optimizer else TOLERANCE_MUON if optimizer == "muon" else TOLERANCE


def test_what_cannot_be_trained_in_partitions_is_skipped_and_nothing_else() -> None:
    made = [cell for engine in ENGINES for cell in cells(engine, METHODS[engine])]
    assert made == CELLS


@pytest.mark.ranks
@pytest.mark.long
@each_cell
def test_two_ranks_do_the_training_of_one(together, alone, engine: str, optimizer: str, method: str) -> None:
    reference = f"{optimizer} in passes" if optimizer in EIGENBASES else optimizer
    losses, one = together(engine)[f"{optimizer} {method}"][0]["losses"], alone()[reference][0]["losses"]
    assert losses == pytest.approx(one, abs=tolerance(optimizer))
    assert abs(one[-1] - alone()["still"][0]["losses"][-1]) > 10 * tolerance(optimizer), (
        "else every optimizer would agree"
    )


@pytest.mark.ranks
@pytest.mark.long
@each_cell
def test_state_is_what_the_file_declares(together, engine: str, optimizer: str, method: str) -> None:
    made, ranks = plan(engine, optimizer, method), together(engine)[f"{optimizer} {method}"]
    held = sum(rank["state"]["moments"] for rank in ranks) / (1 if "Z" in method else len(ranks))
    # In 8 bits tensors under 4096 elements stay in fp32, and there is a table of 256 values.
    rel = 0.05 if made.config.optimizer.moment_dtype == "int8" else 1e-6
    assert held == pytest.approx(made.optimizer_state_bytes_per_parameter * ranks[0]["trainable_parameters"], rel=rel)
    expected = made.memory.optimizer.device + made.memory.optimizer.host
    assert max(rank["state"]["optimizer"] for rank in ranks) == pytest.approx(expected, rel=0.05)


@pytest.mark.ranks
@pytest.mark.long
def test_the_manual_has_what_was_allocated(alone) -> None:
    rows = [
        [cell.strip(" `") for cell in line.split("|")]
        for line in (CONF.parents[1] / "docs" / "methods.md").read_text().splitlines()
        if "|" in line
    ]
    written = {row[1]: row[3] for row in rows if row[1] in OPTIMIZERS}
    assert written == {
        name: f"{alone()[name][0]['state']['moments'] / alone()[name][0]['trainable_parameters']:.2f}"
        for name in OPTIMIZERS
    }


@pytest.mark.ranks
@pytest.mark.long
@each_cell
def test_what_ran_names_the_class(together, engine: str, optimizer: str, method: str) -> None:
    (target,) = plan(engine, optimizer, method).config.optimizer.targets or ("torch.optim.AdamW",)
    ran = together(engine)[f"{optimizer} {method}"][0]["what_ran"]["optimizer_class"].split(", ")[0].split(".")
    assert (ran[0], ran[-1]) == (target.split(".")[0], target.split(".")[-1])


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize(("narrow", "wide"), [("adamw8bit", "adamw"), ("lion8bit", "lion"), ("lomo", "sgd")])
def test_what_is_saved_leaves_the_training_as_it_is(alone, narrow: str, wide: str) -> None:
    assert alone()[narrow][0]["losses"] == pytest.approx(alone()[wide][0]["losses"], abs=tolerance(narrow))
    assert alone()[narrow][0]["losses"][-1] != alone()["adafactor"][0]["losses"][-1]


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_in_backward_holds_one_gradient_at_a_time(together, alone, optimizer: str, ranks: int) -> None:
    observed = alone()[optimizer][0] if ranks == 1 else together("torch")[f"{optimizer} Naive"][0]
    if optimizer in IN_BACKWARD:
        assert observed["state"]["gradients"] == plan("torch", optimizer).memory.gradients.device == 0
        assert observed["most_gradient_bytes"] == observed["largest_gradient_bytes"]
    else:
        assert observed["state"]["gradients"] == observed["most_gradient_bytes"] == 4 * observed["trainable_parameters"]


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_weights_decay_once_a_step_whatever_holds_the_master_copy(together, engine: str) -> None:
    for method in DECAYED[engine]:
        losses, expected = (
            together(engine)[f"decay {method}"][0]["losses"],
            together("torch")["decay Naive"][0]["losses"],
        )
        assert losses == pytest.approx(expected, abs=DECAY_TOLERANCE), method


@pytest.mark.sweep
def test_every_other_method_does_the_same_training_with_its_share_of_the_state(
    together, alone, engine: str, optimizer: str, method: str
) -> None:
    ranks = together(engine, rest=True)[f"{optimizer} {method}"]
    assert ranks[0]["losses"] == pytest.approx(alone()[optimizer][0]["losses"], abs=tolerance(optimizer))
    expected = plan(engine, optimizer, method).memory.optimizer
    assert max(rank["state"]["optimizer"] for rank in ranks) == pytest.approx(expected.device + expected.host, rel=0.05)
