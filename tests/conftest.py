"""Made-up records for all tests: real plans of runs that never ran, with samples and results these might leave."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Callable, Container, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any

import compositions
import cpu_seconds
import marks
import psutil
import pytest
import sharing
from omegaconf import OmegaConf

from llmexp.cli.check import validate
from llmexp.launch.stack import stack_digest
from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, RunResult, RunStatus, Stability, to_json
from llmexp.record.samples import StateBytes, StepSample, TrainingSummary
from llmexp.tasks.resolve import resolve
from llmexp.training.plan.training_plan import TrainingPlan

# Begun by nohup or in the background of a script, the tests ignore these signals, and so would all that they start.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)
# Let oneDNN and precision=auto leave bf16 instructions alone, so that every machine plans and runs the same:
# fp32 where no test says otherwise.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
# Threads that wait for each other sleep: beside other tests they would spin for a quarter of a run's CPU time.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# What torch.compile keeps for one kind of instructions breaks ranks that use another (torch 2.13: corrupted memory).
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR", f"{gettempdir()}/llmexp-tests-inductor-{os.environ.get('ATEN_CPU_CAPABILITY', 'own')}"
)

Write = Callable[..., Path]
MakeRun = Callable[..., RunFolder]
STATE = {"parameters": StateBytes(device=40), "gradients": StateBytes(device=20), "optimizer": StateBytes(host=80)}
CONF = Path(__file__).parents[1] / "conf"
CHOICES = {
    "model": "tiny",
    "hardware": "cpu",
    "engine": "deepspeed",
    "parallelism": "data",
    "optimizer": "adamw",
    "precision": "fp32",
    "data": "synthetic",
    "measure": "smoke",
    "runtime": "here",
    "tracking": "none",
}
IN_NO_GROUP = {
    "task": {"name": "pretrain"},
    "batch": {"micro": 1, "accumulation": 1},
    "sweep": {"name": "main"},
    "seed": 0,
    "force": False,
    "rerun": "none",
}
GPU = {"device": "cuda", "devices_per_node": 8}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", action="store_true", help="print the seconds and CPU seconds of each folder's tests")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()
    if config.option.cpu:
        config.pluginmanager.register(cpu_seconds)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> sharing.Sharing:
    """Take the place of `--dist loadfile`."""
    return sharing.Sharing(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread that have none of the tests that `-m` selects."""
    if collection_path.name.startswith("test_") and marks.lacks(collection_path.read_text(), config.option.markexpr):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that none of them begins when the other workers are nearly done."""
    marks = ("long", "ranks")
    places: dict[Path, int] = {}
    for item in items:
        place = next((place for place, mark in enumerate(marks) if item.get_closest_marker(mark)), len(marks))
        places[item.path] = min(place, places.get(item.path, place))
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """What all tests share stays: it is large, and looking through it for garbage takes a sixth of many tests' time.

    It would also take a sixth of collection.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope="session", autouse=True)
def _composed_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        compositions.remember(patch)
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs, made once because making one takes a second."""
    database = tmp_path_factory.mktemp("store") / "mlflow.db"
    from llmexp.record.mlflow import store

    with warnings.catch_warnings(action="ignore"):
        store.connect(f"sqlite:///{database}", timeout_s=60)
    return database


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the mount table say that tmp_path lies on a filesystem of some kind."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def mount(kind: str) -> None:
        table = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint=str(tmp_path), fstype=kind)]
        monkeypatch.setattr(psutil, "disk_partitions", lambda all: table)

    return mount


@pytest.fixture(scope="session")
def namespace() -> list[str]:
    """What starts a process in a PID namespace of its own, as a container has."""
    start = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*start, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    return start


@cache
def option(group: str, name: str) -> dict[str, Any]:
    """What an option's file says, read once: a thousand tests plan, and each plan has ten of them."""
    read = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"))
    assert isinstance(read, dict)
    return read


@pytest.fixture
def tiny_plan() -> Callable[..., TrainingPlan]:
    """Plan a method; `section__field=value` changes a field, `section=value` a whole section.

    Hardware by any name but cpu is GPUs.
    """

    def plan(method: str = "Naive", **changes: Any) -> TrainingPlan:
        on_gpu = changes.get("hardware__name", changes.get("hardware", {}).get("name", "cpu")) != "cpu"
        choices = CHOICES | ({"precision": "bf16_mixed"} if on_gpu else {})
        config: dict[str, Any] = {group: deepcopy(option(group, name)) for group, name in choices.items()}
        config |= deepcopy(IN_NO_GROUP) | {"method": method}
        for key, value in changes.items():
            section, _, field = key.partition("__")
            config[section] = config[section] | {field: value} if field else value
        if config["hardware"]["name"] != "cpu":
            config["hardware"] |= GPU
        return resolve(
            validate(config),
            [f"method={method}", *(f"{key.replace('__', '.')}={value}" for key, value in changes.items())],
        )

    return plan


@pytest.fixture
def result_of() -> Callable[..., RunResult]:
    """The result of a plan that ended with a status; keywords set further fields."""

    def result(plan: TrainingPlan, status: str, **fields: Any) -> RunResult:
        names = {
            section: getattr(plan.config, section).name for section in ("task", "engine", "model", "hardware", "sweep")
        }
        planned = {
            "id": plan.id,
            "processes": plan.processes,
            "devices": plan.devices,
            "command": plan.rerun_command,
        } | plan.in_result
        return RunResult(status=status, **names | planned | {"stack": "0123456789ab"} | fields)

    return result


@pytest.fixture
def write_samples() -> Callable[..., None]:
    """Write one rank's samples, steps end to end, and its records.

    A step has its seconds and loss, and its positions and real tokens unless these are 350.

    `from_s` is the Unix time of the first one's begin, which older versions do not write.
    """

    def write(
        repeat: Path,
        rank: int,
        steps: Iterable[tuple[Any, ...]],
        warmup: Container[int] = range(2),
        from_s: float | None = None,
        sequences: str | None = None,
    ) -> None:
        lines, start_s = [], 0.0
        for number, (duration_s, loss, *tokens) in enumerate(steps):
            positions, real_tokens, *records = tokens or (350, 350)
            sample = StepSample(
                index=number,
                warmup=number in warmup,
                t_start_s=start_s,
                t_end_s=start_s + duration_s,
                positions=positions,
                real_tokens=real_tokens,
                samples=sum(records),
                loss=loss,
                sequences=sequences,
                phases_s={"forward": duration_s / 4, "backward": duration_s / 2, "optimizer": duration_s / 8},
                memory_bytes=1000 + number,
                at_s=None if from_s is None else from_s + start_s + duration_s,
            )
            lines.append(sample.model_dump_json() + "\n")
            start_s += duration_s
        repeat.mkdir(parents=True, exist_ok=True)
        (repeat / f"samples.{rank}.jsonl").write_text("".join(lines))

    return write


@pytest.fixture
def trained(make_run: Callable[..., RunFolder], write_samples: Callable[..., None]) -> Callable[..., RunFolder]:
    """Make a run with these losses a step on all of its ranks, in fp32 unless said; `read` is each step's digest."""

    def make(
        losses: Iterable[float],
        ranks: int = 1,
        method: str = "Naive",
        update: float | None = 1e-4,
        gradient: float | None = None,
        read: str | None = "10",
        **changes: Any,
    ) -> RunFolder:
        fp32 = {f"precision__{name}": "fp32" for name in ("parameters", "gradients", "master", "moments")}
        own = {"metrics": {"tokens_per_s": 1.0}, "parallelism__dp": ranks, "precision__name": "fp32", **fp32}
        run = make_run(method, **own | changes)
        for rank in range(ranks):
            # The replicas' digests add up to the step's.
            share = f"{int(read, 16) // ranks:x}" if read else None
            write_samples(run.repeat(0), rank, [(1.0, loss) for loss in losses], sequences=share)
            sizes = {"parameters": 1, "trainable_parameters": 1, "peak_rss_bytes": 1, "state_bytes": {}, "what_ran": {}}
            summary = TrainingSummary(
                rank=rank,
                window_wall_s=1.0,
                time_to_first_step_s=1.0,
                largest_update=update,
                gradient_norm=gradient,
                **sizes,
            )
            (run.repeat(0) / f"rank.{rank}.json").write_text(to_json(summary))
        return run

    return make


@pytest.fixture
def write_repeat(tmp_path: Path, write_samples: Callable[..., None]) -> Write:
    """Write one repeat: `ranks` maps a rank to its summary's fields.

    `samples` maps a rank to its (duration, positions, real tokens, loss) of each step.
    """

    def write(
        index: int,
        ranks: dict[int, dict[str, Any]],
        samples: dict[int, list[tuple[float, int, int, float]]],
        warmup: int = 1,
    ) -> Path:
        folder = tmp_path / f"repeat.{index}"
        folder.mkdir(parents=True)
        for rank, fields in ranks.items():
            (folder / f"rank.{rank}.json").write_text(_summary(rank, fields).model_dump_json())
        for rank, steps in samples.items():
            write_samples(
                folder, rank, [(duration_s, loss, *tokens) for duration_s, *tokens, loss in steps], range(warmup)
            )
        return folder

    return write


def _summary(rank: int, fields: dict[str, Any]) -> TrainingSummary:
    known = {
        "window_wall_s": 1.0,
        "time_to_first_step_s": 2.0,
        "parameters": 1000,
        "trainable_parameters": 1000,
        "peak_rss_bytes": 500,
        "state_bytes": STATE,
        "what_ran": {},
    }
    return TrainingSummary(rank=rank, **(known | fields))


@pytest.fixture
def make_run(tmp_path: Path, tiny_plan: Callable[..., TrainingPlan], result_of: Callable[..., RunResult]) -> MakeRun:
    """Write a run's folder with a real plan.

    It has a result with `metrics` (numbers or Metric) where `status` is given.
    """

    def make(
        method: str = "Naive",
        status: str | None = "success",
        metrics: dict[str, Any] | None = None,
        reason: str = "",
        stability: Stability | None = None,
        **changes: Any,
    ) -> RunFolder:
        plan = tiny_plan(method, **changes)
        folder = RunFolder(tmp_path / plan.config.sweep.name / plan.folder_name)
        folder.write(folder.plan_path, plan)
        if status:
            values = {
                name: value if isinstance(value, Metric) else Metric(mean=value)
                for name, value in (metrics or {}).items()
            }
            folder.write(
                folder.result_path, result_of(plan, status, reason=reason, metrics=values, stability=stability)
            )
        return folder

    return make


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All figures that are drawn, to look at what they hold."""
    from llmexp.report.picture import new_figure

    made: list[Any] = []

    def keep(*arguments: Any) -> Any:
        made.append(new_figure(*arguments))
        return made[-1]

    for module in (
        "report.plots",
        "report.run_plots",
        "training.report.loss_plot",
        "training.report.scaling_plot",
    ):
        monkeypatch.setattr(f"llmexp.{module}.new_figure", keep)
    return made


@dataclass
class Runner:
    """Stands for llmexp.launch.run.run_one: notes what it was given and ends it as told, by method."""

    result_of: Callable[..., RunResult]
    endings: dict[str, RunStatus | BaseException] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    largest_micro: int = 10**6

    def __call__(self, plan: TrainingPlan, folder: RunFolder, wanted: Callable[[], bool]) -> RunResult:
        assert wanted()
        folder.write(folder.plan_path, plan)
        if plan.skip:
            ending: RunStatus | BaseException = RunStatus.SKIPPED
        else:
            self.ran.append(plan.name)
            fits = plan.batch.micro <= self.largest_micro
            ending = self.endings.get(plan.method, RunStatus.SUCCESS if fits else RunStatus.OOM)
        if isinstance(ending, BaseException):
            raise ending
        result = self.result_of(plan, ending, stack=stack_digest(plan), reason=str(plan.skip or ""))
        folder.write(folder.result_path, result)
        return result


@pytest.fixture
def runner(result_of: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch) -> Runner:
    fake = Runner(result_of)
    monkeypatch.setattr("llmexp.launch.run.run_one", fake)
    monkeypatch.setattr("llmexp.sweep.pilot.LEAST_STARTS", inf)
    return fake


@pytest.fixture
def llmexp(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: exit code, stdout, stderr.

    It says nothing of its progress, which a busy machine would see.
    """
    from llmexp.__main__ import main
    from llmexp.cli import counting

    monkeypatch.setattr(counting, "FIRST_AFTER_S", inf)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return code, *capfd.readouterr()

    return run
