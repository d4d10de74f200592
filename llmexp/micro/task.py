"""The task micro."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llmexp.analysis.contention import Machine, disturbances, sm_clocks
from llmexp.analysis.quantity import Measurement
from llmexp.micro.config import MicroRunConfig
from llmexp.micro.engine import MicroEngine
from llmexp.micro.limits import LIMITS
from llmexp.micro.plan.micro_plan import MicroPlan
from llmexp.micro.plan.micro_points import points_of
from llmexp.micro.points import MicroRepeat, read_unfinished, results
from llmexp.micro.record import CallSample
from llmexp.micro.report.curves import draw_curves
from llmexp.micro.report.section import MicroSection
from llmexp.record.result import Metric, ResultPoint, Stability
from llmexp.record.run_id import identity
from llmexp.registry import get_engine
from llmexp.report.row import Row
from llmexp.tasks.base import Task

CALL_COLUMNS = {"call_time_s": ("s", "of one call; the mean of several if they are short")}


class Micro(Task[MicroRunConfig, MicroPlan]):
    """Microbenchmarks: many points in one run, all ranks at the same time."""

    name = "micro"
    config_type = MicroRunConfig
    plan_type = MicroPlan
    sample_type = CallSample
    metrics = LIMITS
    section_type = MicroSection
    brief = ("points",)
    level = "calls"
    level_columns = CALL_COLUMNS

    def plan(self, config: MicroRunConfig) -> MicroPlan:
        """List the points; every rank measures each of them."""
        engine = get_engine(self.name, config.engine.name)
        assert isinstance(engine, MicroEngine)
        processes = config.micro.ranks or config.hardware.devices_per_node * config.hardware.nodes
        points = points_of(config)
        listed = [point.model_dump(mode="json") for point in points]
        return MicroPlan(
            id=identity(config, {}, {"points": listed}),
            processes=processes,
            devices=processes,
            engine_config={},
            command=engine.command(config, processes),
            points=points,
            config=config,
        )

    def describe(self, plan: MicroPlan) -> dict[str, str]:
        """Return how many points each family has, and how long they take at most."""
        counts: dict[str, int] = {}
        for point in plan.points:
            counts[point.family] = counts.get(point.family, 0) + 1
        return {
            "points": ", ".join(f"{count} {family}" for family, count in counts.items()),
            "samples": f"{plan.config.measure.samples} of each point, or what fits "
            f"{plan.config.measure.point_limit_s:g} s",
        }

    def rates(self, plan: MicroPlan, repeats: Sequence[MicroRepeat]) -> list[Measurement]:
        """Return no rate: points have rates of their own."""
        return []

    def judge(self, plan: MicroPlan, repeats: Sequence[MicroRepeat], machines: Sequence[Machine]) -> Stability | None:
        """Say what disturbed the machine; None where nothing did, because points show their own spread."""
        reasons = [reason for machine in machines for reason in disturbances(machine)]
        clocks = [clock for machine in machines for clock in sm_clocks(machine)]
        return Stability(verdict="unstable", reasons=reasons, sm_clocks=clocks) if reasons else None

    def points(self, plan: MicroPlan, repeats: Sequence[MicroRepeat]) -> list[ResultPoint]:
        """Return the results of all points."""
        return results(plan, repeats)

    def points_until_now(self, plan: MicroPlan, folder: Path) -> list[ResultPoint]:
        """Return the results of the points that all ranks had measured."""
        return results(plan, [read_unfinished(folder, plan.processes)])

    def level_rows(self, sample: CallSample) -> Iterable[dict[str, Any]]:
        """Yield each timed call of the point; a point that could not be measured has one row without a time."""
        fields = {name: value for name, value in sample.model_dump().items() if name != "times_s"}
        times_s: list[float | None] = [*sample.times_s] or [None]
        return [fields | {"call_time_s": time_s} for time_s in times_s]

    def draw(self, row: Row, figures: Path) -> None:
        """Draw the curves of rates over sizes."""
        draw_curves(MicroSection((row,)), figures / "rates.png")

    def remark(self, repeats: Sequence[MicroRepeat]) -> str:
        """Say how many points could not be measured."""
        lacking = sum(any(sample.problem for sample in ranks) for ranks in repeats[0].measured)
        return f"{lacking} of {len(repeats[0].measured)} points not measured" if lacking else ""

    def outcome(self, plan: MicroPlan, metrics: dict[str, Metric | None]) -> str:
        """Return the number of points."""
        return f"{len(plan.points)} points" if metrics else ""


MICRO = Micro()
