"""Other readers of traces, asked the same of the same file in an environment of their own, if one is named.

They are HolisticTraceAnalysis (facebookresearch, on PyPI) and TraceLens (AMD-AGI, on GitHub; the package tracelens on
PyPI is another program).
"""

from __future__ import annotations

import subprocess

FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
# Busy and idle time with its causes, communication that computation hides, and the time of each kernel.
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: sys.argv[1]})
print(trace.get_temporal_breakdown(visualize=False))
print(trace.get_idle_time_breakdown(ranks=[0], visualize=False))
print(trace.get_comm_comp_overlap(visualize=False))
print(trace.get_gpu_kernel_breakdown(visualize=False))
"""
# Busy and idle time, exposed communication and copies, time by operator and kind, and the FLOP/s of products.
TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
trace = TreePerfAnalyzer.from_file(sys.argv[1])
print(trace.get_df_gpu_timeline())
launchers = trace.get_df_kernel_launchers()
print(trace.get_df_kernel_launchers_summary(launchers))
print(trace.get_df_kernel_launchers_summary_by_category(launchers))
products = [event for event in trace.tree.events if event.get("name") == "aten::mm"]
print(trace.summarize_df_perf_metrics(trace.build_df_perf_metrics(products), ["mean"]))
"""
_RIVALS = {"HolisticTraceAnalysis": ("hta", HTA), "TraceLens": ("TraceLens", TRACELENS)}


def rivals_of(python: str | None) -> dict[str, list[str]]:
    """Return by its name each rival that this interpreter has, with the command that asks it of a file.

    Raises SystemExit where an interpreter is named that has none.
    """
    if python is None:
        return {}
    found = {name: [python, "-c", asked] for name, (package, asked) in _RIVALS.items() if has_package(python, package)}
    if not found:
        raise SystemExit(f"--rivals {python}: it has none of {', '.join(_RIVALS)}")
    return found


def has_package(python: str, package: str) -> bool:
    """Say whether an interpreter finds a package."""
    return subprocess.run([python, "-c", FIND, package], check=False).returncode == 0
