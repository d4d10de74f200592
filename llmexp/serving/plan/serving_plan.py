"""The plan of a run of task=serve: the server that it starts, and the load points that it puts on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from llmexp.inputs.shape import shape_of
from llmexp.record.plan import OutsideServer, RunPlan
from llmexp.record.samples import Record
from llmexp.schema import Dtype, HfModel
from llmexp.schema.section import MAX
from llmexp.serving.config import ServingRunConfig
from llmexp.serving.config.run import ServeConfig
from llmexp.serving.plan.lengths import LengthDraw
from llmexp.serving.plan.server_plan import ServerPlan

TRACES_OWN = "as traced"


class LoadPoint(Record):
    """One load: an open one at a rate, a burst where neither rate nor concurrency is given, or a closed one."""

    number: int
    requests: int = Field(description="with turns, the conversations, as in warmup")
    warmup: int
    turns: int = 1
    probe: int | None = Field(None, description="of a search, counted from 1; None: planned from the beginning")
    rate_per_s: float | None = None
    concurrency: int | None = None
    follows: Literal["rate", "trace", "ramp"] = Field(
        "rate", description="a trace and a ramp have this rate on average"
    )

    @property
    def is_burst(self) -> bool:
        """Tell whether all requests are due at once."""
        return self.rate_per_s is None and self.concurrency is None

    @property
    def samples(self) -> int:
        """The measured requests, turns of conversations each by itself."""
        return self.requests * self.turns

    @property
    def load_s(self) -> float | None:
        """The seconds for which its requests are sent, those of the warm-up too; None at the server's own pace."""
        return (self.warmup + self.requests) / self.rate_per_s if self.rate_per_s else None

    @property
    def at_work(self) -> int:
        """The most requests that are at work at a time for certain."""
        return self.concurrency or self.requests

    @property
    def params(self) -> dict[str, Any]:
        """The point as the parameters of a result's point."""
        if self.concurrency:
            return {"load": "closed", "concurrency": self.concurrency}
        if self.follows != "rate":
            return {"load": self.follows, "rate_per_s": MAX if self.is_burst else self.rate_per_s}
        probe = {"probe": self.probe} if self.probe else {}
        return {"load": "open", "rate_per_s": MAX if self.is_burst else self.rate_per_s} | probe

    def __str__(self) -> str:
        return load_name(self.params)


def load_name(params: Mapping[str, Any]) -> str:
    """Return the name of a load by the parameters of its result."""
    if "concurrency" in params:
        return f"{params['concurrency']} at a time"
    rate_per_s, follows = params["rate_per_s"], params["load"]
    rate = MAX if rate_per_s == MAX else f"{rate_per_s:.4g}/s"
    probe = f", probe {params['probe']}" if "probe" in params else ""
    repeat = f" of repeat {params['repeat']}" if "repeat" in params else ""
    return f"{rate}{probe}{repeat}" if follows == "open" else f"{follows} {rate}"


class ServingPlan(RunPlan):
    """The plan of task=serve; its samples are requests."""

    rate: ClassVar[str] = "output_tokens_per_s"
    sample_name: ClassVar[str] = "request"

    config: ServingRunConfig
    server: ServerPlan
    dtype: Dtype | None = Field(description="None: a server that runs already has its own, and nobody said which")
    positions: int = Field(description="the most tokens of one request, prompt and output together")
    points: list[LoadPoint]

    @property
    def name_fields(self) -> dict[str, str]:
        """The model and the engine."""
        return {"model": self.config.model.name, "engine": self.config.engine.name}

    @property
    def comparison_key(self) -> dict[str, str]:
        """The properties that runs share whose rates can be compared, and the engine, which is what is compared."""
        serve = self.config.serve
        only_trace = not serve.search and all(point.follows == "trace" for point in self.points)
        own = {name: value for name, value in super().comparison_key.items() if name != "ranks"}
        own |= {"server": self.server.address} if self.server.address else {}
        return own | {
            "model": self.config.model.name,
            "devices": str(self.devices),
            "dtype": self.dtype or "its own dtype",
            "prompt": TRACES_OWN if only_trace else str(serve.texts or serve.prompt),
            "output": TRACES_OWN if only_trace else _output(serve),
            "prefix": f"prefix of {serve.prefix}" if serve.prefix and not only_trace else "",
            "trace": serve.trace.file if serve.trace else "",
            "adapters": str(serve.adapters or ""),
            "sampling": str(serve.sampling or ""),
            "turns": _turns(serve),
            "requests": str(serve.requests),
            "loads": ", ".join([*map(str, self.points), *([str(serve.search)] if serve.search else [])]),
        }

    @property
    def outside_server(self) -> OutsideServer | None:
        """The server that runs already."""
        server = self.server
        return OutsideServer(server.address, server.ready, "serve.address") if server.address else None

    @property
    def samples(self) -> int:
        """The number of requests, those of the warm-ups included; not known where rates are searched."""
        return (
            0 if self.config.serve.search else sum(point.warmup * point.turns + point.samples for point in self.points)
        )

    @property
    def measured_samples(self) -> int:
        """The number of measured requests; not known where rates are searched."""
        return 0 if self.config.serve.search else sum(point.samples for point in self.points)

    @property
    def load_s(self) -> float | None:
        """The seconds of all load points; None where one of them goes at the server's own pace or is searched for."""
        return None if self.config.serve.search or self.unpaced else sum(point.load_s or 0.0 for point in self.points)

    @property
    def unpaced(self) -> list[LoadPoint]:
        """The load points that go at the server's own pace: bursts and closed loads."""
        return [point for point in self.points if point.load_s is None]

    @property
    def least_flops(self) -> float | None:
        """Those of the layers' matrices: 2 a weight for each token that a request does not share with earlier ones.

        Requests of a trace, and of a search, are left out. None where the model's shape or the lengths are not known,
        and for a server that runs already.
        """
        serve = self.config.serve
        shape = None if self.server.address or serve.texts else shape_of(self.config.model)
        if shape is None:
            return None
        tokens = sum(LengthDraw.of(lengths).distribution.mean for lengths in (serve.prompt, serve.output))
        requests = sum(point.warmup * point.turns + point.samples for point in self.points if point.follows != "trace")
        return 2 * shape.active_linear_parameters * requests * tokens

    @property
    def peak_flops_per_s(self) -> float | None:
        """None where the weights may be multiplied in fewer bits, in which devices have a higher peak."""
        may_be_quantized = isinstance(self.config.model, HfModel) or self.config.engine.options.get("quantization")
        return None if may_be_quantized else super().peak_flops_per_s

    @property
    def replicas(self) -> int:
        """One client sends all requests."""
        return 1


def _output(serve: ServeConfig) -> str:
    return "as the recorded answers" if serve.texts and serve.texts.answers else str(serve.output)


def _turns(serve: ServeConfig) -> str:
    think = f", {serve.think_time_s:g} s between them" if serve.think_time_s else ""
    return f"{serve.turns} turns{think}" if serve.turns > 1 else ""
