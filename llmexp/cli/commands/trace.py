"""The command llmexp trace shows where the time of a run's profiled steps went, or of any trace of torch.profiler."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from llmexp.cli.arguments import Parser, command_parser, one_run
from llmexp.cli.timeline import check_there_is, draw_step, untraced
from llmexp.cli.trace_tables import compare, show
from llmexp.errors import ConfigError, TraceError
from llmexp.launch.detect import described
from llmexp.record.breakdown import RunBreakdown, read_breakdown
from llmexp.record.calibration import calibration_for
from llmexp.record.counted import CountedPeaks
from llmexp.record.folder import RunFolder
from llmexp.report.breakdown.parts import Profiled
from llmexp.traces.run import break_down_ranks, break_down_run, traces_of

DIFF = "diff"


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("trace", "Shows where the time of the profiled steps went, by phase, module and kernel.")
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a run's folder, or a trace that torch.profiler wrote; 'diff A B' says what makes the difference of two",
    )
    parser.add_argument(
        "--timeline", type=Path, metavar="FILE", help="draw one step instead, as a PNG, SVG or PDF: what ran when"
    )
    parser.add_argument("--rank", type=int, default=0, help="the rank whose timeline is drawn; 0 by default")
    parser.add_argument(
        "--hardware",
        metavar="NAME",
        help="the hardware whose peaks a foreign trace is compared with; default: by its GPU's name",
    )
    return parser


def main(args: Namespace) -> int:
    """Print the tables, or draw the timeline."""
    words = args.paths
    if args.timeline:
        if len(words) > 1:
            raise ConfigError(f"--timeline draws one run or trace, not {len(words)}: llmexp trace RUN --timeline FILE")
        draw_step(Path(words[0]), args.rank, args.timeline)
        return 0
    if words[0] == DIFF and not Path(DIFF).exists():
        if len(words) != 3:
            raise ConfigError(f"trace diff takes two runs or traces, not {len(words) - 1}: llmexp trace diff A B")
        compare(*(_profiled(Path(word), args.hardware) for word in words[1:]))
        return 0
    for word in words:
        show(_profiled(Path(word), args.hardware))
    return 0


def _profiled(path: Path, hardware: str | None) -> Profiled:
    """Read a run's breakdown, or make one of a file; raises ConfigError or TraceError."""
    check_there_is(path)
    if (
        path.is_dir()
        and not (path / "plan.json").exists()
        and (found := traces_of(path.parent))
        and path.name == "trace"
    ):
        return Profiled(path.parent.name, _foreign(found, hardware))
    if not path.is_dir():
        return Profiled(path.name, _foreign([path], hardware))
    if hardware:
        raise ConfigError("--hardware is for foreign traces: a run records its own")
    folder = one_run(path)
    breakdown = read_breakdown(folder) or _again(folder)
    if breakdown is None:
        raise TraceError(untraced(folder))
    result = folder.result()
    measured = result.metrics.get("step_time_s") if result else None
    return Profiled(folder.path.name, _readable(breakdown), measured.mean if measured else None)


def _again(folder: RunFolder) -> RunBreakdown | None:
    from llmexp.record.plan import RunPlan  # its schema takes a fifth of the time in which the command starts

    plan, result = RunPlan.read(folder.plan_path), folder.result()
    hardware, environment = plan.config.hardware, result.environment if result else {}
    limits = calibration_for(hardware.calibration, folder.path.parents[1], plan.processes, environment)
    return break_down_run(folder, plan.processes, CountedPeaks.of(hardware), limits)


def _foreign(traces: Sequence[Path], hardware: str | None) -> RunBreakdown:
    """Break down traces whose hardware is named, or is known by the GPU's name."""
    if hardware and hardware not in _described():
        raise ConfigError(f"--hardware={hardware}: unknown hardware; choices are {', '.join(_described())}")
    found = _readable(break_down_ranks(traces))
    device_name = found.ranks[0].device_name
    by_name = (name for name, node in _described().items() if device_name in node.get("device_names", ()))
    node = _described().get(hardware or next(by_name, ""), {})
    peaks = CountedPeaks(
        flops_per_s=dict(node.get("peak_flops_per_s", {})), bytes_per_s=node.get("memory_bandwidth_bytes_per_s")
    )
    return found.model_copy(update={"peaks": peaks})


@cache
def _described() -> Mapping[str, Any]:
    """Return the described hardware by name, which takes a tenth of a second to read."""
    return described()


def _readable(found: RunBreakdown) -> RunBreakdown:
    if not found.ranks:
        raise TraceError(found.remark)
    return found
