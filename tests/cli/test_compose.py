from __future__ import annotations

import re

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from llmexp.cli.app import CONFIG, hydra_app
from llmexp.cli.compose import Composer, container_of
from llmexp.cli.jobs import plan_jobs
from llmexp.cli.overrides import accept
from llmexp.errors import ConfigError

# Jobs whose configuration must be Hydra's own: values before and after groups, twice, into free mappings,
# by interpolation, deletions.
JOBS = [
    "model=7b method=F+R+Z3 batch.micro=4",
    "batch.micro=4 model=7b batch.micro=8 data.seq_len=350",
    "model=hf model.path=someone/some-model measure.steps=7",
    "experiment=paper_table03 hardware=a800 method=Q measure.repeats=1",
    "experiment=paper_table03 measure=smoke sweep.name=mine",
    "engine.options.gradient_clipping=0.5 engine.options.deep.er=[1,2]",
    "hardware.environment.NCCL_ALGO=Ring hardware=a800",
    "batch={micro:2,accumulation:3} seed=5",
    "measure.steps=${measure.warmup_steps} measure.warmup_steps=9",
    "tracking.uri=http://127.0.0.1:9 tracking.timeout_s=3.5",
    "~engine.options batch.micro=2",
    "batch.micro=2 ~engine.options",
    "data=text 'data.files=[a.txt,b.txt]'",
    "hydra.job.chdir=false seed=1",
    "data.path=null precision=fp32 optimizer.betas=[0.5,0.6]",
    "model=org/model data=synthetic",
]


@pytest.mark.parametrize("job", JOBS)
def test_a_job_composes_as_hydra_composes_it(job: str):
    with hydra_app() as hydra:
        loader = hydra.config_loader
        words = accept(loader, job.replace("'", "").split())
        master = hydra.compose_config(CONFIG, [], RunMode.MULTIRUN)
        by_hydra = container_of(loader.load_sweep_config(master, words))
        composer = Composer(loader, master, [])
        assert composer.container(words) == by_hydra
        assert composer.container(words) == by_hydra, "a job must leave nothing behind for the next one"


def test_a_job_like_the_command_line_is_not_composed_again():
    with hydra_app() as hydra:
        words = accept(hydra.config_loader, ["model=7b", "batch.micro=3"])
        master = hydra.compose_config(CONFIG, words, RunMode.MULTIRUN)
        hydra.config_loader.load_sweep_config = None
        assert Composer(hydra.config_loader, master, words).container(words) == container_of(master)


def test_hydra_composes_once_a_choice_of_groups(monkeypatch: pytest.MonkeyPatch):
    with hydra_app() as hydra:
        loader = hydra.config_loader
        composed: list[list[str]] = []
        compose = loader.load_sweep_config
        monkeypatch.setattr(
            loader, "load_sweep_config", lambda master, words: composed.append(words) or compose(master, words)
        )
        words = accept(
            loader,
            [
                "model=tiny,1b",
                "method=Naive,F,R+Z3",
                "batch.micro=1,2,4,8,16",
                "seed=0,1",
                "data=synthetic",
                "hardware=h100",
            ],
        )
        jobs = plan_jobs(loader, hydra.compose_config(CONFIG, words, RunMode.MULTIRUN))
    assert len({job.plan.id for job in jobs}) == len(jobs) == 60
    assert {
        (job.plan.config.model.name, job.plan.batch.micro, job.plan.config.seed, job.plan.method) for job in jobs
    } == {
        (model, micro, seed, method)
        for model in ("tiny", "1b")
        for micro in (1, 2, 4, 8, 16)
        for seed in (0, 1)
        for method in ("Naive", "F", "R+Z3")
    }
    assert composed == [
        ["model=tiny", "data=synthetic", "hardware=h100"],
        ["model=1b", "data=synthetic", "hardware=h100"],
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("model=tiny,1b batch.micro=1,0", "run model=tiny batch.micro=0: batch.micro=0"),
        ("model=tiny,7c seed=0,1", "run model=7c seed=0: unknown model '7c'"),
        ("seed=0,1 model=hf,tiny", "run seed=0 model=hf: model.path is missing"),
    ],
)
def test_the_wrong_job_is_named(words: str, named: str):
    with hydra_app() as hydra:
        accepted = accept(hydra.config_loader, words.split())
        master = hydra.compose_config(CONFIG, accepted, RunMode.MULTIRUN)
        with pytest.raises(ConfigError, match="^" + re.escape(named)):
            plan_jobs(hydra.config_loader, master)


def test_hydras_own_part_is_left_out():
    with hydra_app() as hydra:
        container = container_of(hydra.compose_config(CONFIG, [], RunMode.MULTIRUN))
    assert "hydra" not in container
    assert OmegaConf.create(container).sweep.name == "main"
