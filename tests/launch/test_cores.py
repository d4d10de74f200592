from __future__ import annotations

import pytest
from planning import make_plan

from llmexp.launch import cores
from llmexp.launch.cores import cores_of, too_few_cores

CARD = ("hardware=h100", "hardware.devices_per_node=4", "model=tiny")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["method=F"], 8),
        (["method=Z2+O"], 16),
        (["method=C"], 16),
        (["method=F", "engine=megatron"], 8),
        (["method=F", "measure.threads_per_rank=20"], 20),
        (["method=F", "hardware=cpu", "hardware.devices_per_node=2"], 1),
    ],
)
def test_a_rank_wants_what_it_does_on_the_host(words: list[str], wanted: int) -> None:
    assert cores_of(make_plan(*CARD, *words)) == wanted


@pytest.mark.parametrize(
    ("words", "there", "said"),
    [
        (["method=F"], 7, "4 ranks on GPUs may use 7 cores here: launches and NCCL will be slower than with 32 (SLURM"),
        (["method=F"], 8, ""),
        (["method=Z2+O"], 63, "the optimizer's update on the host will be slower than with 64 "),
        (["method=Z2+O"], 64, ""),
        (["method=F", "parallelism.dp=1"], 1, "1 rank on GPUs may use 1 core here"),
        (["method=F", "hardware=cpu"], 1, ""),
    ],
)
def test_ranks_with_too_few_cores_are_told_so(
    monkeypatch: pytest.MonkeyPatch, words: list[str], there: int, said: str
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: there)
    found = too_few_cores(make_plan(*CARD, *words))
    assert found.startswith(said) or said in found
    assert bool(found) is bool(said)
