"""What atom C needs where the ranks run: they compile what torch.compile generates."""

from __future__ import annotations

from llmexp.launch.runtime import Runtime
from llmexp.method import Method
from llmexp.plan.run_plan import RunPlan
from llmexp.record.installed import C_COMPILERS, COMPILERS, Installed


def compile_tools(found: Installed, device: str) -> dict[str, str | None]:
    """Where that lies which torch.compile needs, None for what is missing: C++ for a CPU; for a GPU Triton, whose launchers are in C."""
    compilers = {
        "cpu": {f"C++ compiler ({', '.join(COMPILERS)})": found.compiler},
        "cuda": {f"C compiler ({', '.join(C_COMPILERS)})": found.c_compiler},
    }
    return compilers[device] | {"Python.h (python3-dev)": found.python_header}


def uncompilable(plan: RunPlan) -> str | None:
    """Say what torch.compile lacks where the plan's ranks run, if the plan has C and something is missing."""
    if not _compiles(plan):
        return None
    missing = [name for name, path in compile_tools(Runtime(plan).installed, plan.config.hardware.device).items() if not path]
    return f"C: torch.compile compiles in the ranks, and this machine has no {' and no '.join(missing)}" if missing else None


def compiler_variables(plan: RunPlan) -> dict[str, str]:
    """The C++ compiler that was found, by the variable's name that torch.compile reads; by itself it knows g++ alone."""
    found = Runtime(plan).installed.compiler if _compiles(plan) else None
    return {"CXX": found} if found else {}


def _compiles(plan: RunPlan) -> bool:
    return Method.parse(plan.method, plan.config.task.name).techniques.compilation
