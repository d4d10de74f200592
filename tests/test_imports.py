"""Imports go one way, and what is heavy stays in its room: read from the sources, and once by really importing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from llmexp.registry import ENGINES, REFERENCES, TASKS, TRACKERS

ROOT = Path(__file__).parent.parent
# The rooms of llmexp from the lowest floor up; a room imports only rooms of lower floors. A part of a task's room that
# its ranks import too has a floor of its own.
FLOORS = (
    ("terms", "version", "hook", "machine"),
    ("errors",),
    ("plugins",),
    ("dtypes",),
    ("schema",),
    ("compress.config", "serving.config", "training.config"),
    ("method", "registry"),
    ("record",),
    (
        "analysis",
        "bundle",
        "inputs",
        "measure",
        "traces",
        "compress.plan",
        "compress.record",
        "micro.record",
        "serving.record",
    ),
    ("micro.families", "serving.analysis", "serving.plan", "training.plan"),
    # The keys of task=micro are those of its families.
    ("launch", "report", "micro.config"),
    ("doctor", "frame", "slurm", "tasks", "micro.plan"),
    ("compress", "micro", "serving", "training"),
    ("launchers", "paper", "review", "sweep"),
    ("advice",),
    ("answers",),
    ("cli",),
    ("hydra_plugins", "__main__", "extend", "extend_ranks"),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# What ranks may reach, besides their engine's folder. Of launch it is what starts servers and ends with them.
OF_RANKS = (
    *("launchers", "measure", "analysis", "inputs", "record", "registry", "method", "plugins", "errors", "terms"),
    *("schema", "dtypes", "machine", "hook", "version", "launch.spawn", "launch.supervisor", "launch.server_address"),
    *("launch.server_answer", "launch.no_steps_hint", "training.config", "training.plan"),
    *("serving.config", "serving.plan", "serving.record", "serving.analysis"),
    *("micro.config", "micro.families", "micro.plan", "micro.record"),
    *("compress.config", "compress.plan", "compress.record"),
)
# A library and the only rooms that may import it.
ONLY_IN = {
    "hydra._internal": ("cli.hydra_private", "hydra_plugins.llmexp_sweeper.sweeper"),
    "torch": ("measure", "launchers"),
    "deepspeed": ("launchers.deepspeed", "launchers.training.saving"),
    "transformers": ("launchers",),
    "peft": ("launchers",),
    "bitsandbytes": ("launchers",),
    "torchao": ("launchers.models.float8", "launchers.models.fake_quantizing"),
    "flash_attn": ("launchers",),
    "datasets": ("launchers",),
    "huggingface_hub": ("launchers",),
    "safetensors": ("launchers",),
    "gguf": ("launchers.serving.weights.gguf_writer", "launchers.serving.server.reported_memory"),
    "megatron": ("launchers.megatron",),
    "torchft": ("launchers.torchft",),
    "mlflow": ("record.mlflow",),
    "tensorboard": ("record.trackers.tensorboard",),
    "wandb": ("record.trackers.wandb",),
    "jinja2": ("report.page",),
    "submitit": ("slurm.submit",),
    "optuna": ("sweep.search.study", "sweep.search.sampling"),
    "pynvml": ("machine.accelerators.nvml",),
    "amdsmi": ("machine.accelerators.amd_board",),
    "numpy": ("traces",),
    "pandas": ("frame",),
    "msgspec": ("record.shared_parts", "traces", "launchers.serving"),
    "httptools": ("launchers.serving",),
    "uvloop": ("launchers.serving",),
}
# What the machine is asked by; nothing outside of its room does so.
ASKING = frozenset(
    {
        "sched_getaffinity",
        "cpu_affinity",
        "cpu_count",
        "virtual_memory",
        "swap_memory",
        "cpu_times",
        "cpu_percent",
        "getloadavg",
        "processor",
    }
)
ASKED = re.compile(r"(/proc|/sys)(/|$)|(nvidia-smi|lscpu)$")
# What only one engine needs: nothing else imports it, neither another engine nor what engines share.
OF_ONE_ENGINE = (
    "launchers.compress",
    "launchers.deepspeed",
    "launchers.torch_native",
    "launchers.torchft",
    "launchers.megatron",
    "launchers.script",
    "launchers.micro",
    "launchers.serving",
)
# A task's own, and who imports it: the engines that do its work with what their ranks share, and published figures that
# stand beside its runs. Others know tasks by the registry alone; what tasks share lies in rooms that all import.
OF_ONE_TASK = {
    "training": (
        "paper",
        *(f"launchers.{room}" for room in ("deepspeed", "megatron", "script", "torch_native", "torchft")),
        "launchers.training",
        *(f"launchers.{room}" for room in ("data", "models", "tracing")),
    ),
    "serving": ("paper", "launchers.serving"),
    "micro": ("paper", "launchers.micro"),
    "compress": ("launchers.compress", "review"),
}
# What makes a command slow to answer where it is imported before it is needed.
LAZY = (
    "torch",
    "deepspeed",
    "transformers",
    "mlflow",
    "matplotlib",
    "pandas",
    "rich",
    "submitit",
    "numpy",
    "msgspec",
    "jinja2",
    "tensorboard",
    "wandb",
    "optuna",
)

# These are imported by those who need what is heavy: ranks, and who reads a trace or many runs.
HEAVY = (
    "measure",
    "launchers",
    "hydra_plugins",
    "traces",
    "cli.commands.trace",
    "cli.timeline",
    "record.shared_parts",
    "record.mlflow.confined",
    "sweep.search.study",
    "sweep.search.sampling",
)


def modules() -> dict[str, Path]:
    """Every module by its name below llmexp, hydra_plugins and launchers included."""
    found = {}
    for folder, prefix in (("llmexp", ""), ("launchers", "launchers."), ("hydra_plugins", "hydra_plugins.")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[(prefix + ".".join(parts)).removesuffix("__init__").rstrip(".")] = path
    return found


MODULES = modules()


def imported(source: str) -> Iterator[str]:
    """Dotted names that a source imports when it runs, wherever in it; `from a import b` as a.b."""
    for node in _run(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _run(child)


@cache
def imports_of(module: str) -> list[str]:
    return list(imported(MODULES[module].read_text()))


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{room}.") for room in rooms)


def own_name(name: str) -> str | None:
    """The name below llmexp of what is imported; None for other libraries."""
    if name.startswith(("llmexp.", "hydra_plugins.", ".")):
        return name.removeprefix("llmexp.")
    return "" if name == "llmexp" else None


def room_of(name: str) -> str:
    return max((room for room in FLOOR_OF if within(name, (room,))), key=len, default=name.partition(".")[0])


def offences(module: str, source: str) -> list[str]:
    room = room_of(module)
    wrong = []
    for name in imported(source):
        own = own_name(name)
        if own is not None and not _is_lower(room_of(own), room):
            wrong.append(name)
        if own and any(within(own, (one,)) and not within(module, (one,)) for one in OF_ONE_ENGINE):
            wrong.append(name)
        if own and any(within(own, (one,)) and not within(module, (one, *by)) for one, by in OF_ONE_TASK.items()):
            wrong.append(name)
        if own and within(own, ("paper",)) and not within(module, ("paper",)):
            wrong.append(name)
        if any(within(name, (library,)) and not within(module, rooms) for library, rooms in ONLY_IN.items()):
            wrong.append(name)
    return wrong


def _is_lower(room: str, than: str) -> bool:
    return room == than or FLOOR_OF.get(room, len(FLOORS)) < FLOOR_OF[than]


def reached(begins: Iterable[str]) -> dict[str, str]:
    """What these modules import, directly or not, each with the module that was found to import it."""
    found = dict.fromkeys(begins, "")
    waiting = list(found)
    while waiting:
        module = waiting.pop()
        for name in map(own_name, imports_of(module)):
            places = [name, name.rpartition(".")[0]] if name else []
            new = [place for place in places if place in MODULES and place not in found]
            found |= dict.fromkeys(new, module)
            waiting += new
    return found


def test_every_room_has_its_floor() -> None:
    assert {room_of(name) for name in MODULES if name} == set(FLOOR_OF)


def test_a_module_imports_only_what_its_room_may() -> None:
    found = {name: offences(name, path.read_text()) for name, path in MODULES.items() if name}
    assert len(found) > 500
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: {own for each in imports_of(name) if (own := _module_of(each)) and own != name} for name in MODULES}
    while leaves := {name for name, needs in graph.items() if not needs & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    assert sorted(graph) == []


def _module_of(name: str) -> str | None:
    own = own_name(name)
    places = [own, own.rpartition(".")[0]] if own else []
    return next((place for place in places if place in MODULES), None)


BY_NAME = (*TASKS.values(), *ENGINES.values(), *REFERENCES.values(), *TRACKERS.values())
DRIVERS_SIDE = [place.partition(":")[0].removeprefix("llmexp.") for place in BY_NAME]
RANKS_LIBRARIES = tuple(library for library, rooms in ONLY_IN.items() if within(rooms[-1], ("measure", "launchers")))


def test_the_driver_reaches_nothing_that_only_ranks_import() -> None:
    begins = [name for name in MODULES if not within(name, ("launchers", "measure"))] + DRIVERS_SIDE
    found = reached(begins)
    assert "launchers.deepspeed.build" in found
    heavy = {
        name: [each for each in imports_of(name) if within(each, RANKS_LIBRARIES)]
        for name in found
        # The reader of many runs and of traces are the driver's.
        if not within(name, ("record.shared_parts", "traces"))
    }
    assert {name: libraries for name, libraries in heavy.items() if libraries} == {}


@pytest.mark.parametrize("worker", [name for name in MODULES if re.fullmatch(r"launchers\.\w+\.worker", name)])
def test_a_worker_reaches_no_drivers_side(worker: str) -> None:
    found = reached([worker])
    wrong = {name: by for name, by in found.items() if name in DRIVERS_SIDE or not within(name, OF_RANKS)}
    assert {name: by for name, by in wrong.items() if name} == {}
    assert len([task for task in OF_ONE_TASK if any(within(name, (task,)) for name in found)]) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("training.plan.dims", "from llmexp.launch.run import run_one"),
        ("inputs.shape", "from llmexp.analysis import window"),
        ("errors", "def f():\n    from llmexp import terms, cli"),
        ("launch.run", "from llmexp.tasks.base import Task"),
        ("launch.run", "def f():\n    from llmexp.launchers.deepspeed import build"),
        ("report.row", "import llmexp"),
        ("tasks.base", "import llmexp.launchers.models.hub"),
        ("measure.loop", "import deepspeed.ops"),
        ("launch.run", "def f():\n    import torch"),
        ("launchers.megatron.model", "from llmexp.launchers.torch_native.stages import Stage"),
        ("launchers.script.worker", "from llmexp.launchers import deepspeed"),
        ("launchers.training.measuring", "def f():\n    import llmexp.launchers.deepspeed.state"),
        ("launchers.models.building", "import deepspeed"),
        ("launchers.micro.worker", "from llmexp.launchers.serving.client.client import Client"),
        ("launchers.rank.frame", "import uvloop"),
        ("serving.task", "from llmexp.training.metrics import METRICS"),
        ("cli.jobs", "from llmexp.training.metrics import METRICS"),
        ("launchers.deepspeed.worker", "from llmexp.serving.record.requests import RequestSample"),
        ("launchers.rank.frame", "from llmexp.training.config import TrainingConfig"),
        ("frame.levels", "from llmexp.serving.record.requests import RequestSample"),
        ("record.trackers.points", "def f():\n    from llmexp.micro.record import CallSample"),
        ("training.report.section", "from llmexp.paper.printed import SOURCE"),
        ("cli.published", "def f():\n    from llmexp.paper.reference import PAPER"),
        ("cli.jobs", "from hydra._internal.hydra import Hydra"),
        ("record.folder", "from mlflow import MlflowClient"),
        ("record.trackers.also", "def f():\n    import wandb"),
        ("record.folder", "from ..launch import run"),
        ("machine.gpus", "from llmexp.errors import ConfigError"),
        ("record.system", "def f():\n    import pynvml"),
    ],
)
def test_the_rule_sees_an_offence(module: str, source: str) -> None:
    assert len(set(offences(module, source))) == 1


def types_of(source: str) -> Iterator[str]:
    """Public types that a source defines: its classes, and the names that it gives to other types."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        else:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [each.id for each in targets if isinstance(each, ast.Name) and re.match("[A-Z][a-z]", each.id)]
        yield from (name for name in names if not name.startswith("_"))


def test_a_type_that_rooms_share_has_a_name_of_its_own() -> None:
    defined: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for name in types_of(path.read_text()):
            defined.setdefault(name, []).append(module)
    users = {(own, module) for module in MODULES for each in imports_of(module) if (own := own_name(each))}
    shared = {
        name: modules
        for name, modules in defined.items()
        if len(modules) > 1
        if any((f"{one}.{name}", user) in users for one in modules for user in MODULES if room_of(user) != room_of(one))
    }
    assert shared == {}


def test_what_only_a_type_checker_reads_is_no_import() -> None:
    source = "import json\nif TYPE_CHECKING:\n    import torch"
    assert list(imported(source)) == ["json"]


def questions(source: str) -> list[str]:
    """Where a source asks the machine what it is.

    It asks by a file of the kernel's, a command, or a function of os, psutil or platform.
    """
    nodes = list(ast.walk(ast.parse(source)))
    texts = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ASKED.match(node.value)
    ]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    return texts + [f"{call.value.id}.{call.attr}" for call in calls if isinstance(call, ast.Attribute) and _asks(call)]


def _asks(call: ast.Attribute) -> bool:
    return call.attr in ASKING and isinstance(call.value, ast.Name) and call.value.id in ("os", "psutil", "platform")


def test_the_machine_is_asked_in_one_room() -> None:
    asking = {name: questions(path.read_text()) for name, path in MODULES.items() if not within(name, ("machine",))}
    assert {name: texts for name, texts in asking.items() if texts} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import os\ncores = len(os.sched_getaffinity(0))",
        "import psutil\nfree = psutil.virtual_memory().available",
        "Path('/proc/cpuinfo').read_text()",
        "subprocess.run(['nvidia-smi', '-L'])",
    ],
)
def test_a_question_to_the_machine_is_seen(source: str) -> None:
    assert len(questions(source)) == 1


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    names = [f"llmexp.{name}" for name in MODULES if name and not within(name, HEAVY)]
    loads = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\nprint([name for name in {LAZY} "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_load_client_is_light() -> None:
    """What torch brings would stop it at times, and take memory from the server beside it."""
    programs = re.compile("writer|quality.reference")  # which are started as processes of their own
    own = [name for name in MODULES if within(name, ("launchers.serving",)) and not programs.search(name)]
    names = [f"llmexp.{name}" for name in own]
    loads = f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True)
    assert (len(names) > 5, done.stdout, done.stderr) == (True, "False\n", "")


def test_planning_needs_none_of_what_only_ranks_need() -> None:
    absent = [name for name, rooms in ONLY_IN.items() if within(rooms[-1], ("launchers",))]
    hide = (
        f"import runpy, sys\nfor name in {absent}: sys.modules[name] = None\nrunpy.run_module('llmexp', "
        "run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide, "plan", "method=F+R+Z3", "model=13b", "hardware=a800"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "F+R+Z3" in done.stdout
