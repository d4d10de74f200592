"""Imports go one way, and what is heavy stays in its room: read from the sources, and once by really importing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A room of llmexp and the rooms, or single modules, that it may import besides itself.
LOWEST = ("errors", "terms", "schema", "machine", "record", "plugins", "tasks")
PLANNING = (*LOWEST, "method", "plan")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "terms": (),
    "errors": ("terms",),
    "hook": (),
    "plugins": ("errors",),
    "schema": ("errors",),
    "machine": (),
    "record": ("errors", "schema", "machine", "tasks"),
    "reference": ("errors",),
    "traces": ("errors", "record"),
    "bundle": ("errors", "record"),
    "frame": ("errors", "record", "analysis", "report", "tasks", "bundle"),
    "method": ("errors", "schema", "plugins"),
    "plan": PLANNING,
    "engines": PLANNING,
    "analysis": ("errors", "machine.throttling", "record"),
    "report": ("errors", "record", "reference", "analysis", "tasks"),
    "tasks": (*PLANNING, "engines", "analysis", "reference", "report"),
    "measure": ("schema", "machine.processes", "machine.own_threads", "record.samples"),
    "launch": (*PLANNING, "engines", "analysis", "traces"),
    "doctor": (*PLANNING, "engines", "launch"),
    "launchers": (*PLANNING, "measure", "analysis", "engines.deepspeed", "hook", "launch.spawn"),
    "slurm": (*PLANNING, "engines", "analysis", "launch"),
    "sweep": (*PLANNING, "engines", "analysis", "report", "launch", "slurm"),
    "cli": (
        *PLANNING,
        "engines",
        "analysis",
        "report",
        "reference",
        "bundle",
        "launch",
        "traces",
        "doctor",
        "slurm",
        "sweep",
        "hydra_plugins",
    ),
    "hydra_plugins": ("errors", "schema", "slurm", "sweep", "cli"),
    "__main__": ("errors", "cli"),
}
# A library and the only rooms that may import it.
ONLY_IN = {
    "hydra._internal": ("cli.hydra_private", "hydra_plugins.llmexp_sweeper.sweeper"),
    "torch": ("measure", "launchers"),
    "deepspeed": ("launchers.deepspeed", "launchers.training.gathering"),
    "transformers": ("launchers",),
    "peft": ("launchers",),
    "bitsandbytes": ("launchers",),
    "flash_attn": ("launchers",),
    "datasets": ("launchers",),
    "huggingface_hub": ("launchers",),
    "safetensors": ("launchers",),
    "gguf": ("launchers.serving.weights.gguf_writer", "launchers.serving.server.holdings"),
    "megatron": ("launchers.megatron",),
    "mlflow": ("record.mlflow",),
    "jinja2": ("report.page",),
    "submitit": ("slurm.submit",),
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
    "launchers.deepspeed",
    "launchers.torch_native",
    "launchers.megatron",
    "launchers.script",
    "launchers.serving",
)
# A task's own: others know it by its name, and what it shares lies in the rooms that all tasks import.
OF_ONE_TASK = ("tasks.training",)
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
    """Dotted names that a source imports, wherever in it; `from a import b` as a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names)


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{room}.") for room in rooms)


def offences(module: str, source: str) -> list[str]:
    room = module.partition(".")[0]
    wrong = []
    for name in imported(source):
        own = name.removeprefix("llmexp.")
        is_own = own != name or name.startswith(("hydra_plugins.", "."))
        if is_own and own != "__version__" and not within(own, (room, *MAY_IMPORT[room])):
            wrong.append(name)
        if any(within(own, (one,)) and not within(module, (one,)) for one in (*OF_ONE_ENGINE, *OF_ONE_TASK)):
            wrong.append(name)
        if any(within(name, (library,)) and not within(module, rooms) for library, rooms in ONLY_IN.items()):
            wrong.append(name)
    return wrong


def test_a_module_imports_only_what_its_room_may() -> None:
    found = {name: offences(name, path.read_text()) for name, path in MODULES.items() if name}
    assert len(found) > 500
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("plan.dims", "from llmexp.launch.run import run_one"),
        ("analysis.metrics", "def f():\n    from llmexp import schema"),
        ("engines.deepspeed", "import llmexp.launchers.models.hub"),
        ("measure.loop", "from llmexp.record.folder import RunFolder"),
        ("measure.loop", "import deepspeed.ops"),
        ("launch.run", "def f():\n    import torch"),
        ("launchers.megatron.model", "from llmexp.launchers.torch_native.stages import Stage"),
        ("launchers.script.worker", "from llmexp.launchers import deepspeed"),
        ("launchers.training.measuring", "def f():\n    import llmexp.launchers.deepspeed.state"),
        ("launchers.models.building", "import deepspeed"),
        ("launchers.micro.worker", "from llmexp.launchers.serving.client.client import Client"),
        ("launchers.rank.frame", "import uvloop"),
        ("launch.collect", "from llmexp.tasks.training.metrics import METRICS"),
        ("cli.jobs", "from hydra._internal.hydra import Hydra"),
        ("record.folder", "from mlflow import MlflowClient"),
        ("record.folder", "from . import result"),
        ("machine.gpus", "from llmexp.errors import ConfigError"),
        ("analysis.contention", "from llmexp.machine.host_load import load"),
        ("record.system", "def f():\n    import pynvml"),
    ],
)
def test_the_rule_sees_an_offence(module: str, source: str) -> None:
    assert len(offences(module, source)) == 1


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
    names = [f"llmexp.{name}" for name in MODULES if within(name, ("launchers.serving",)) and "writer" not in name]
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
