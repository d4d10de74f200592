"""The sections of task=serve: the load that is put on a server, what it has to keep, and how the server is laid out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from llmexp.schema.model import HfModel, ModelConfig
from llmexp.schema.run import MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.section import Dtype, Max, OneRun, PositiveFloat, PositiveInt, Requests, Section, Whole, listed
from llmexp.serving.config.engine import ServerEngineConfig
from llmexp.serving.config.lengths import OutputLengths, PromptLengths
from llmexp.serving.config.load import (
    NonNegativeFloat,
    PromptTexts,
    Ramp,
    RateSearchConfig,
    Sampling,
    ServedAdapters,
    SharedPrefix,
    TraceConfig,
)
from llmexp.serving.config.quality import QualityConfig


def _asked_for(value: Any) -> Any:
    """Return the defaults for true, and none for false."""
    return ({} if value else None) if isinstance(value, bool) else value


Rates = Annotated[tuple[PositiveFloat | Max, ...], OneRun, BeforeValidator(listed)]
Counts = Annotated[tuple[Annotated[int, Field(ge=1), Whole], ...], OneRun, BeforeValidator(listed)]


class SloConfig(Section):
    """What a request has to keep to count for goodput; latencies count from when it was due. None asks nothing."""

    ttft_s: PositiveFloat | None = Field(None, description="time to first token")
    tpot_s: PositiveFloat | None = Field(None, description="time per output token after the first")
    end_to_end_s: PositiveFloat | None = Field(None, description="time to the last byte of the answer")


class ServeConfig(Section):
    """The load: each rate, each concurrency, the trace and the ramp are load points, and at last a search's probes."""

    name: str
    rate: Rates = Field((), description="requests per second of open loads; max: all requests at once")
    concurrency: Counts = Field((), description="requests in flight at a time in closed loads")
    arrivals: Literal["poisson", "constant", "gamma"] = Field("poisson", description="of open loads")
    burstiness: PositiveFloat = Field(
        1.0, description="shape of the gamma distribution: below 1 requests come in bursts"
    )
    requests: Requests = Field(
        description="of each load point, without warm-up; a trace may have fewer. With turns, the conversations"
    )
    turns: Requests = Field(1, description="requests of a conversation, each with all earlier turns")
    think_time_s: NonNegativeFloat = Field(0.0, description="from an answer's end until the next turn is due")
    warmup_requests: Requests | None = Field(
        None,
        description="before each load point, under its own load; None: as many as it has in flight, at most 32",
    )
    prompt: PromptLengths
    output: OutputLengths
    texts: PromptTexts | None = Field(None, description="real texts as prompts, with their own lengths")
    prefix: SharedPrefix | None = Field(None, description="before every prompt, in addition to its length")
    trace: TraceConfig | None = Field(None, description="one more open load, with recorded times and lengths")
    sampling: Sampling | None = Field(None, description="how the next token is drawn; None: always the likeliest one")
    adapters: ServedAdapters | None = Field(None, description="LoRA adapters; requests ask for them in turn")
    ramp: Ramp | None = Field(None, description="one more open load, whose rate changes over time")
    search: Annotated[RateSearchConfig | None, BeforeValidator(_asked_for)] = Field(
        None, description="for the highest rate that the server sustains, within slo if that is set"
    )
    slo: SloConfig = SloConfig()
    quality: Annotated[QualityConfig | None, BeforeValidator(_asked_for)] = Field(
        None, description="a fixed set of prompts, whose answers are compared with one process's; true: the defaults"
    )
    dtype: Dtype | None = Field(None, description="of weights and computation; None: bf16, on cpu fp32")
    weights: Literal["auto", "folder", "own"] = Field(
        "auto",
        description="folder: random weights of the seed, which every engine reads; own: the engine draws them itself; "
        "auto: own only for models above 4 GB, where the engine can",
    )
    address: str | None = Field(
        None, description="http:// or https:// host:port of a server that runs already; None: one is started"
    )
    served_name: str | None = Field(None, description="the model's name in requests to serve.address; None: llmexp")
    profile: bool = Field(False, description="after the load points, repeat the last one's load under the profiler")
    profile_s: PositiveFloat = Field(
        2.0,
        description="of each profiled window: one from the start of the load, one once every request has its "
        "first token",
    )
    silent_timeout_s: PositiveFloat = Field(
        120.0,
        description="a server that sends nothing for this long is asked whether it is ready: if so, the requests in "
        "flight are given up once; if not, it hangs",
    )

    @property
    def answers(self) -> int:
        """How many answers a request asks for."""
        return self.sampling.answers if self.sampling else 1

    @property
    def beams(self) -> int:
        """How many beams are searched for each request; 1 where tokens are drawn, or the likeliest ones."""
        return self.sampling.beams if self.sampling else 1

    @model_validator(mode="after")
    def _has_points(self) -> ServeConfig:
        if not (self.rate or self.concurrency or self.trace or self.ramp or self.search):
            raise ValueError("serve.rate and serve.concurrency are empty: set one of them, such as serve.rate=max")
        return self

    @model_validator(mode="after")
    def _has_turns_that_can_be_sent(self) -> ServeConfig:
        if self.turns > 1 and self.trace:
            raise ValueError(
                f"serve.turns={self.turns}: the requests of serve.trace are single ones; set only one of them"
            )
        if self.turns > 1 and self.search:
            raise ValueError(
                f"serve.turns={self.turns}: serve.search judges single requests, and the error rate of searches by "
                f"conversations is unknown: set serve.turns=1, or rates of your own with serve.search=null"
            )
        if self.turns > 1 and self.answers > 1:
            raise ValueError(
                f"serve.turns={self.turns}: a conversation goes on after one answer: leave serve.sampling.n and "
                "serve.sampling.beams out"
            )
        if self.turns == 1 and self.think_time_s:
            raise ValueError(f"serve.think_time_s={self.think_time_s:g} is the time between turns: set serve.turns")
        return self

    @model_validator(mode="after")
    def _asks_beams_for_no_first_token(self) -> ServeConfig:
        asked = {"slo.ttft_s": self.slo.ttft_s, "slo.tpot_s": self.slo.tpot_s, "profile": self.profile}
        if self.beams > 1 and (key := next((key for key, given in asked.items() if given), None)):
            raise ValueError(
                f"serve.{key}={asked[key]}: answers of serve.sampling.beams come whole, without a first token: "
                f"leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _has_prompts_of_one_kind(self) -> ServeConfig:
        others = {"serve.trace": self.trace, "serve.prefix": self.prefix, "serve.turns": self.turns > 1}
        if self.texts and (other := next((key for key, given in others.items() if given), None)):
            raise ValueError(
                f"serve.texts={self.texts.path} and {other}, whose prompts are random tokens: leave one of them out"
            )
        return self


class ServingParallelismConfig(Section):
    """How the model is laid out over the devices of its server."""

    tp: PositiveInt = Field(1, description="tensor parallelism: number of devices that each matrix is split over")
    pp: PositiveInt = Field(1, description="pipeline parallelism: number of stages that the layers are split into")
    dp: PositiveInt = Field(1, description="data parallelism: number of whole copies of the model behind one address")


class ServingTaskConfig(TaskConfig):
    """An inference server under a load."""

    name: Literal["serve"]


class ServingRunConfig(RunConfig):
    """The configuration of a run of task=serve."""

    task: ServingTaskConfig
    engine: ServerEngineConfig
    model: ModelConfig
    serve: ServeConfig
    parallelism: ServingParallelismConfig = ServingParallelismConfig()
    measure: MeasureConfig

    @property
    def inputs(self) -> tuple[str, ...]:
        """The files of lengths and of texts, the trace, and the checkpoint."""
        serve = self.serve
        own = (self.model.path,) if isinstance(self.model, HfModel) else ()
        given = (serve.prompt, serve.output, serve.trace, serve.texts)
        return (*own, *(place for section in given if section for place in section.inputs))
