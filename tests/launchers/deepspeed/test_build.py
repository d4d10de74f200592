from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from patience import until

from llmexp.errors import BuildError
from llmexp.launchers.deepspeed import build as ops
from llmexp.record.result import to_json
from llmexp.training.plan.training_plan import TrainingPlan

SCRIPT = Path(__file__).parent / "scripts" / "op_builder.py"
DRIVER = """
import sys
from pathlib import Path
from llmexp.launchers.deepspeed import build as ops
from llmexp.training.plan.training_plan import TrainingPlan
ops.BUILDER = tuple(sys.argv[2:])
ops.prepare_ops(TrainingPlan.read(Path(sys.argv[1])))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CXX", "c++")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "llmexp" / "deepspeed_ops"


@pytest.fixture
def tally(tmp_path: Path) -> Path:
    return tmp_path / "tally"


@pytest.fixture
def builder(tally: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, ...]]:
    def behave(behavior: str) -> tuple[str, ...]:
        command = (str(SCRIPT), str(tally), behavior)
        monkeypatch.setattr(ops, "BUILDER", command)
        return command

    return behave


@pytest.fixture
def plan_of(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., TrainingPlan]:
    def plan(method: str = "Z2", implementation: str = "deepspeed", device: str = "cpu") -> TrainingPlan:
        return tiny_plan(method, optimizer__implementation=implementation, hardware__device=device)

    return plan


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("CXX")


@pytest.mark.parametrize(
    ("method", "implementation", "op"),
    [
        ("Z3+O", "torch", None),
        ("Naive", "deepspeed", "fused_adam"),
        ("Z3", "deepspeed", "fused_adam"),
        ("Z2+O", "deepspeed", "cpu_adam"),
    ],
)
def test_only_deepspeeds_own_optimizers_need_an_op(
    plan_of: Callable[..., TrainingPlan], method: str, implementation: str, op: str | None
) -> None:
    assert ops.needed_op(plan_of(method, implementation)) == op


def test_builds_once_and_aloud(
    plan_of: Callable[..., TrainingPlan],
    builder: Callable[[str], object],
    tally: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    builder("build")
    variables = [ops.prepare_ops(plan_of()) for _ in range(2)]
    assert variables[0] == variables[1]
    assert Path(variables[0][ops.OP_LIBRARY_VARIABLE]).read_text() == "machine code"
    assert tally.read_text() == "fused_adam beside []\n"
    assert capsys.readouterr().err.splitlines() == [
        "building DeepSpeed's fused_adam, once per machine; this takes some minutes ...",
        "built fused_adam in 0 s",
    ]
    assert list(cache.glob("*/build.*")) == []


def test_nothing_is_built_for_torchs_optimizers(
    plan_of: Callable[..., TrainingPlan], builder: Callable[[str], object], tally: Path
) -> None:
    builder("build")
    assert ops.prepare_ops(plan_of("Z2+O", "torch")) == {}
    assert not tally.exists()


def test_a_failed_build_names_its_log_and_is_tried_again(
    plan_of: Callable[..., TrainingPlan], builder: Callable[[str], object]
) -> None:
    builder("fail")
    with pytest.raises(BuildError, match=r"DeepSpeed's fused_adam could not be built: see (.*)") as raised:
        ops.prepare_ops(plan_of())
    assert "error: no such header" in Path(str(raised.value).rpartition("see ")[2]).read_text()
    builder("build")
    assert ops.prepare_ops(plan_of())


def test_a_build_without_end_is_ended(
    plan_of: Callable[..., TrainingPlan], builder: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder("never")
    monkeypatch.setattr(ops, "BUILD_TIMEOUT_S", 0.5)
    with pytest.raises(BuildError, match=r"fused_adam was not built within 0.5 s"):
        ops.prepare_ops(plan_of())


def test_a_killed_builder_holds_up_nobody(
    plan_of: Callable[..., TrainingPlan],
    builder: Callable[[str], tuple[str, ...]],
    tmp_path: Path,
    tally: Path,
    cache: Path,
    processes: Callable[[], list[psutil.Process]],
) -> None:
    (tmp_path / "plan.json").write_text(to_json(plan_of()))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "plan.json"), *builder("never")])
    until(lambda: tally.exists() and tally.read_text())
    driver.kill()
    driver.wait()
    until(lambda: not processes())
    builder("build")
    assert ops.prepare_ops(plan_of())
    assert tally.read_text() == "fused_adam beside []\n" * 2
    assert list(cache.glob("*/build.*")) == []


def test_two_drivers_build_once(
    plan_of: Callable[..., TrainingPlan],
    builder: Callable[[str], tuple[str, ...]],
    tmp_path: Path,
    tally: Path,
) -> None:
    (tmp_path / "plan.json").write_text(to_json(plan_of()))
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "plan.json"), *builder("when released")]
    first = subprocess.Popen(command)
    until(tally.exists)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as second:
        assert second.stderr
        assert second.stderr.readline() == "waiting for another llmexp that is building DeepSpeed's ops ...\n"
        tally.with_name("released").touch()
        assert first.wait() == second.wait() == 0
        assert second.stderr.read() == ""
    assert tally.read_text() == "fused_adam beside []\n"


@pytest.mark.usefixtures("no_tools")
def test_a_machine_without_a_compiler_says_what_it_lacks(plan_of: Callable[..., TrainingPlan]) -> None:
    needs_compiler = plan_of()
    reason = ops.unbuildable(needs_compiler)
    assert reason
    assert "no C++ compiler (c++, g++, clang++) and no ninja: set optimizer=adamw, which compiles nothing" in reason
    with pytest.raises(BuildError, match="no C\\+\\+ compiler"):
        ops.prepare_ops(needs_compiler)
    assert ops.unbuildable(plan_of(implementation="torch")) is None


@pytest.mark.usefixtures("no_tools")
def test_fused_adam_on_cuda_needs_the_toolkit_and_cpu_adam_does_not(plan_of: Callable[..., TrainingPlan]) -> None:
    assert "nvcc" in str(ops.unbuildable(plan_of("Z2", device="cuda")))
    assert "nvcc" not in str(ops.unbuildable(plan_of("Z2+O", device="cuda")))


def test_what_is_built_needs_no_compiler_any_more(
    plan_of: Callable[..., TrainingPlan], builder: Callable[[str], object], request: pytest.FixtureRequest
) -> None:
    builder("build")
    built = ops.prepare_ops(plan_of())
    request.getfixturevalue("no_tools")
    assert ops.unbuildable(plan_of()) is None
    assert ops.prepare_ops(plan_of()) == built


def test_a_cache_that_cannot_be_written_is_named(
    plan_of: Callable[..., TrainingPlan],
    builder: Callable[[str], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder("build")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BuildError, match="set XDG_CACHE_HOME"):
        ops.prepare_ops(plan_of())
