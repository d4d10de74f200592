from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from marks import slow

from llmexp import launchers
from llmexp.launch.worker_sources import MissingSourceError, worker_sources

SHARED = {
    "record/samples.py",
    "measure/loop.py",
    "rank/frame.py",
    "rank/communication.py",
    "training/measuring.py",
    "launchers/__init__.py",
}
DEEPSPEED, TORCH, MEGATRON = (
    f"llmexp.launchers.{engine}.worker" for engine in ("deepspeed", "torch_native", "megatron")
)


def names(*words: str) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in worker_sources(words)}


@pytest.mark.parametrize(("worker", "own"), [(DEEPSPEED, "deepspeed"), (TORCH, "torch_native"), (MEGATRON, "megatron")])
def test_a_worker_has_what_engines_share_and_its_own_room_alone(worker: str, own: str) -> None:
    found = names("python", "-m", "llmexp.launch.ranks", "2", "-m", worker, "{folder}")
    assert found >= {*SHARED, f"{own}/worker.py"}
    rooms = {name.partition("/")[0] for name in found}
    assert rooms & {"deepspeed", "torch_native", "megatron", "script"} == {own}
    assert not rooms & {"report", "launch", "tasks", "frame", "cli"}
    assert f"{own}/engine.py" not in found, "the driver's side"


@pytest.mark.ranks
@pytest.mark.parametrize(
    "engine", ["serving", *map(slow, ("torch_native", "deepspeed", "megatron", "script", "micro"))]
)
def test_all_that_a_worker_really_imports_is_in_the_digest(engine: str) -> None:
    worker = f"llmexp.launchers.{engine}.worker"
    code = (
        f"import sys, {worker}\n"
        "print(*{module.__file__ for name, module in sys.modules.items() if name.partition('.')[0] == 'llmexp'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {Path(word) for word in done.stdout.splitlines()[-1].split() if word != "None"}
    assert len(imported) > 20
    assert imported - set(worker_sources(("-m", worker))) == set()


def test_a_forked_rank_has_its_forker_too() -> None:
    forked = names("python", "-m", "llmexp.launch.fork_server", TORCH, "2")
    assert forked - names("-m", TORCH) == {"rank/forked.py"}


def test_what_ranks_of_microbenchmarks_call_is_in_their_digest_though_families_name_it() -> None:
    found = names("-m", "llmexp.launchers.micro.worker")
    called = {f"micro/{path.name}" for path in (Path(launchers.__path__[0]) / "micro").glob("*.py")}
    assert called - found == {"micro/engine.py"}
    assert {"families/gemm.py", "families/disk.py"} <= found
    assert "micro/gemm.py" not in names("-m", TORCH)


def test_a_worker_of_another_package_reaches_what_its_own_modules_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "somebodys"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "worker.py").write_text("def work():\n    from somebodys.inner import train\n")
    (package / "inner.py").write_text("from llmexp.launchers.rank import (\n    frame as frame,\n)\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = names("python", "-m", "somebodys.worker", "{folder}")
    assert "rank/frame.py" in found
    assert "somebodys" not in sys.modules
    assert not [name for name in found if name.startswith(("deepspeed/", "training/"))]


@pytest.mark.parametrize(
    "lost",
    ["from llmexp.launchers.rank.nowhere import frame", "import llmexp.plan.nowhere", "from somebodys.gone import x"],
)
def test_a_source_that_is_not_there_is_an_error(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "somebodys_other"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "worker.py").write_text(lost.replace("somebodys", "somebodys_other") + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingSourceError, match=r"worker\.py imports \S+, which has no source"):
        names("python", "-m", "somebodys_other.worker", "{folder}", lost)


def test_no_launcher_is_imported_to_find_its_worker() -> None:
    words = "python", "-m", "torch.distributed.run", "--nnodes", "1", "-m", TORCH, "{folder}"
    code = (
        "import sys; from llmexp.launch.worker_sources import worker_sources; "
        f"print(len(worker_sources({words})), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(worker_sources(("-m", TORCH)))), "False"]


def test_a_command_that_names_no_module_stands_for_all() -> None:
    everything = names("/bin/true", "a.b.c", "{folder}")
    assert everything > names("-m", DEEPSPEED) | names("-m", TORCH) | names("-m", MEGATRON)
