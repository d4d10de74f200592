from __future__ import annotations

import pytest

from llmexp.launchers.deepspeed.engine import DeepSpeedEngine
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.knobs import degrees_limit
from llmexp.training.plan.degrees import DEGREES, RANK_ORDER, WITH_RANKS, Degree, words_of
from llmexp.training.plan.dims import ParallelDims


class _OneMore(ParallelDims):
    xp: int = 1


class _StatesNothing(DeepSpeedEngine):
    name = "bare"
    degrees = TrainingEngine.degrees


def test_every_degree_is_a_key_and_a_field_of_dims() -> None:
    keys = TrainingConfig.model_fields["parallelism"].annotation.model_fields
    assert [name for name in DEGREES if name not in keys or name not in ParallelDims.model_fields] == []


def test_ranks_are_ordered_along_every_degree_that_has_ranks() -> None:
    assert sorted(RANK_ORDER) == sorted(WITH_RANKS)


def test_ranks_with_the_same_parameters_are_those_of_degrees_that_do_not_cut_them() -> None:
    dims = ParallelDims(dp=2, tp=3, pp=5, cp=7, ep=2)
    assert (dims.world_size, dims.same_parameters) == (210, 14)
    assert [dims.parts(what) for what in ("batch", "matrices", "layers", "sequence", "experts")] == [2, 3, 5, 7, 2]


def test_a_degree_more_is_known_by_its_row(plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan("parallelism.cp=2")
    monkeypatch.setitem(DEGREES, "xp", Degree("extra", "sequence", has_ranks=False))
    dims = _OneMore(dp=1, tp=1, pp=1, cp=2, ep=1, xp=4)
    assert (dims.parts("sequence"), dims.layout, dims.cutting("sequence")) == (8, "cp 2 xp 4", {"cp": 2, "xp": 4})
    against = degrees_limit(made.config, DeepSpeedEngine(), made.techniques, dims)
    assert against == "engine=deepspeed runs data and context parallelism only, not xp=4"


def test_an_engine_that_states_no_degrees_has_whole_replicas_only(plan) -> None:
    made = plan("parallelism.cp=2")
    against = degrees_limit(made.config, _StatesNothing(), made.techniques, made.dims)
    assert against == "engine=bare runs data parallelism only, not cp=2"
    alone = plan("parallelism.dp=2")
    assert degrees_limit(alone.config, _StatesNothing(), alone.techniques, alone.dims) is None


def test_kinds_of_parallelism_in_words() -> None:
    assert words_of(["dp"]) == "data parallelism"
    assert words_of(["dp", "tp", "pp"]) == "data, tensor and pipeline parallelism"
