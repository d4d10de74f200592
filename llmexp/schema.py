"""The configuration: every key that a person may set, with its type, unit and range.

The YAML of `conf/` composes into `RunConfig`; `llmexp.cli.check` turns pydantic's findings into one line with the nearest valid key.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

CpKind = Literal["ring", "ulysses"]
Dtype = Literal["fp32", "bf16"]
BYTES_PER_ELEMENT: dict[str, int] = {"fp32": 4, "bf16": 2}
# int8: blocks of 256 with an fp32 scale each, as bitsandbytes has them (arXiv 2110.02861, section 2.1).
BYTES_PER_MOMENT: dict[str, float] = BYTES_PER_ELEMENT | {"int8": 1 + 4 / 256}

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Tuple = Field(strict=False)
DottedPath = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")]


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, types are not coerced, values don't change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=(), defer_build=True)


class TaskConfig(Section):
    """What is done with the model."""

    name: Literal["pretrain", "finetune"]
    save_model: bool = Field(
        False, description="leave all weights, adapters merged, in repeat.0/model when everything is measured: a folder for transformers"
    )


class AdapterConfig(Section):
    """What the atoms L, QL and P add to a model whose own parameters are frozen; PEFT's names, in its own words."""

    rank: PositiveInt = Field(64, description="L, QL: rows of A and columns of B")
    alpha: PositiveFloat = Field(16.0, description="L, QL: what B A is multiplied with, times rank")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="L, QL: share of the inputs of A that are left out at random")
    targets: Annotated[tuple[str, ...], Tuple] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        description="L, QL: the matrices of a layer that get an A and a B",
    )
    save: bool | None = Field(
        None, description="leave the adapter in repeat.0/adapter when everything is measured, for PEFT; None: where weights are pretrained"
    )
    virtual_tokens: PositiveInt = Field(20, description="P: trained embeddings before every sequence")


class ModelConfig(Section):
    """A decoder-only transformer's shape; for `architecture: hf` the shape comes from `path` instead."""

    name: str
    target: DottedPath | None = Field(
        None, description="a class of transformers' kind, or a function, that builds the model instead of AutoModelForCausalLM"
    )
    architecture: Literal["llama", "qwen3", "mixtral", "hf"]
    path: str | None = Field(None, description="folder or hub name of a transformers model; only with architecture hf")
    weights: Literal["random", "pretrained"] = Field(
        "random",
        description="where training starts: values drawn from the seed, which suffice for throughput, or the safetensors of `path`",
    )
    trust_remote_code: bool = False
    vocab_size: PositiveInt | None = None
    hidden_size: PositiveInt | None = None
    intermediate_size: PositiveInt | None = None
    num_layers: PositiveInt | None = None
    num_heads: PositiveInt | None = None
    num_kv_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    max_positions: PositiveInt | None = None
    num_experts: PositiveInt | None = Field(None, description="MLPs of each layer, with a router before them; only with architecture mixtral")
    experts_per_token: PositiveInt | None = Field(None, description="of them, those that a token goes through")
    rope_theta: PositiveFloat = 10000.0
    rms_norm_eps: PositiveFloat = 1e-5
    tie_embeddings: bool = False
    source: str = ""

    @model_validator(mode="after")
    def _shape_or_path(self) -> ModelConfig:
        if self.architecture == "hf":
            if not self.path:
                raise ValueError("model=hf needs model.path=<folder or hub name of a transformers model>")
            return self
        if self.weights == "pretrained":
            raise ValueError(f"model.weights=pretrained needs a checkpoint: set model=<folder or hub name>, instead of model={self.name}")
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "max_positions")
        missing = [key for key in sizes if getattr(self, key) is None]
        if missing:
            raise ValueError(f"model.{missing[0]} is missing for architecture {self.architecture}")
        self._check_experts()
        if self.num_heads and self.num_kv_heads and self.num_heads % self.num_kv_heads:
            raise ValueError(f"model.num_heads={self.num_heads} is not a multiple of model.num_kv_heads={self.num_kv_heads}")
        return self

    def _check_experts(self) -> None:
        counts = {"num_experts": self.num_experts, "experts_per_token": self.experts_per_token}
        sparse = self.architecture == "mixtral"
        wrong = next((name for name, count in counts.items() if (count is None) is sparse), None)
        if wrong and sparse:
            raise ValueError(f"model.{wrong} is missing for architecture mixtral")
        if wrong:
            raise ValueError(f"model.{wrong}={counts[wrong]} is of architecture mixtral, and model={self.name} is {self.architecture}: leave it out")
        if self.num_experts and self.experts_per_token and self.experts_per_token > self.num_experts:
            raise ValueError(f"model.experts_per_token={self.experts_per_token} is more than model.num_experts={self.num_experts}")


class HardwareConfig(Section):
    """One machine: its devices, their dense peaks, links and price, each with a source."""

    name: str
    device: Literal["cuda", "cpu"]
    device_names: Annotated[tuple[str, ...], Tuple] = Field((), description="the driver's names for this device")
    devices_per_node: PositiveInt
    nodes: PositiveInt = Field(1, description="machines of this kind that a run takes")
    network_interface: str | None = Field(None, description="by which ranks of several nodes talk, such as ib0; None: their libraries choose")
    memory_bytes: PositiveInt | None = Field(None, description="of one device; None on cpu: the host's memory counts")
    host_memory_bytes: PositiveInt | None = None
    peak_flops_per_s: dict[Dtype, PositiveFloat] = Field(default_factory=dict, description="dense, no sparsity, per device")
    memory_bandwidth_bytes_per_s: PositiveFloat | None = None
    interconnect: str | None = None
    interconnect_bandwidth_bytes_per_s: PositiveFloat | None = Field(None, description="per device and direction")
    host_link_bandwidth_bytes_per_s: PositiveFloat | None = Field(None, description="host to device, per device and direction")
    environment: dict[str, str] = Field(default_factory=dict, description="variables the machine needs, such as NCCL_P2P_DISABLE")
    price_per_device_hour_usd: PositiveFloat | None = None
    sources: dict[str, str] = Field(default_factory=dict)


class OptimizerConfig(Section):
    """AdamW with its constants; or, with `target`, any optimizer class of torch's kind, whose constants are in `options`."""

    name: str
    implementation: Literal["torch", "deepspeed", "deepspeed_with_offload"] = "torch"
    lr: Annotated[float, Field(ge=0)]
    betas: Annotated[tuple[float, float] | None, Tuple] = None
    eps: PositiveFloat | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    target: DottedPath | None = Field(None, description="dotted path of an optimizer class; called with the parameters, lr and options")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the target's class besides lr")
    moments: NonNegativeInt | None = Field(None, description="state tensors of a parameter's size that the target keeps of it; None: not known")
    moment_dtype: Literal["fp32", "bf16", "int8"] | None = Field(
        None, description="of the target's moments; int8: in blocks of 256 with an fp32 scale each; None: precision.moments"
    )
    factored: bool = Field(False, description="the target keeps of a matrix's moment one vector of its rows and one of its columns")
    fused_backward: bool = Field(False, description="the target updates each parameter as soon as backward has its gradient, which is then dropped")

    @property
    def package(self) -> str:
        """Top-level module of the target's class; empty for AdamW."""
        return (self.target or "").partition(".")[0]

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer's class."""
        if self.target:
            return {"lr": self.lr, **self.options}
        return {"lr": self.lr, "betas": list(self.betas or ()), "eps": self.eps, "weight_decay": self.weight_decay}

    @model_validator(mode="after")
    def _adamw_or_target(self) -> OptimizerConfig:
        constants = {"betas": self.betas, "eps": self.eps, "weight_decay": self.weight_decay}
        wrong = next((name for name, value in constants.items() if (value is None) is not bool(self.target)), None)
        if wrong and self.target:
            raise ValueError(f"optimizer.{wrong} is AdamW's: with optimizer.target={self.target} put it into optimizer.options")
        if wrong:
            raise ValueError(f"optimizer.{wrong} is missing: set optimizer.{wrong}=<value>, or optimizer.target for another class than AdamW")
        if self.target and self.implementation != "torch":
            raise ValueError(f"optimizer.target={self.target} needs optimizer.implementation=torch, not {self.implementation}")
        of_target = {"options": self.options, "moments": self.moments is not None, "moment_dtype": self.moment_dtype}
        alone = next((name for name, value in of_target.items() if value and not self.target), None)
        if alone:
            raise ValueError(f"optimizer.{alone} says something of optimizer.target, which is not set")
        return self


class ParallelismConfig(Section):
    """Degrees of parallelism; their product is the world size. dp: null takes what the hardware has."""

    dp: PositiveInt | None
    tp: PositiveInt = 1
    sequence: bool = Field(False, description="sequence parallelism: norms and residuals cut along the sequence over the tensor-parallel ranks")
    pp: PositiveInt = 1
    virtual_stages: PositiveInt = Field(1, description="stages of each pipeline rank")
    schedule: Literal["gpipe", "1f1b", "interleaved", "looped_bfs", "zero_bubble", "zbv", "dualpipev"] | None = Field(
        None, description="the order of a pipeline's passes; None: 1f1b, or interleaved with several virtual stages"
    )
    cp: PositiveInt = Field(1, description="context parallelism: every sequence cut over so many ranks")
    cp_kind: CpKind | None = Field(
        None,
        description="with cp: ring, where keys and values pass from rank to rank, or ulysses, where each rank attends with some of the heads; "
        "None: the engine's own",
    )
    ep: PositiveInt = 1


class PrecisionConfig(Section):
    """Storage dtypes; master is the dtype of the copy that the optimizer updates (equal to parameters: no copy)."""

    name: str
    parameters: Dtype
    gradients: Dtype
    master: Dtype
    moments: Dtype


class MemoryConfig(Section):
    """Where a rank keeps what is no training state."""

    activation_offload: bool = Field(False, description="what backward needs of forward waits in host memory, parameters left out")


class KernelsConfig(Section):
    """Kernels in the place of the model's own."""

    liger: bool = Field(False, description="Liger's fused kernels for norms, rotary embeddings, gated MLPs and the loss; GPUs only")


class EngineConfig(Section):
    """Who runs the training step, and who starts its ranks."""

    name: str
    launcher: Literal["torchrun", "deepspeed"]
    options: dict[str, Any] = Field(default_factory=dict, description="merged over the native configuration of the engine")


class RuntimeConfig(Section):
    """Where the ranks run: this interpreter, another one, or one in a container; with what is loaded and set before they start."""

    name: str
    python: str | None = Field(None, description="interpreter of the ranks; None: llmexp's own, or python3 of the image")
    container: Literal["apptainer", "docker"] | None = None
    program: str | None = Field(None, description="what is called for the container, such as singularity or podman; None: its own name")
    image: str | None = None
    options: Annotated[tuple[str, ...], Tuple] = Field((), description="further options of `apptainer exec` or `docker run`")
    modules: Annotated[tuple[str, ...], Tuple] = Field((), description="names for `module load`, on the host")
    setup: Annotated[tuple[str, ...], Tuple] = Field((), description="bash lines run before the ranks, in the container where there is one")
    environment: dict[str, str] = Field(default_factory=dict, description="variables of the ranks")

    @property
    def plain(self) -> bool:
        """Whether ranks run in llmexp's own interpreter with nothing before it."""
        return not (self.python or self.container or self.modules or self.setup)

    @model_validator(mode="after")
    def _image_and_container(self) -> RuntimeConfig:
        if self.name == "here" and (self.python or self.container):
            raise ValueError(f"runtime=here is llmexp's own interpreter: runtime=venv takes runtime.python={self.python or '<interpreter>'}")
        if self.container and not self.image:
            raise ValueError(f"runtime={self.name} needs runtime.image=<image of {self.container}>")
        lone = next((name for name in ("image", "program", "options") if getattr(self, name)), None)
        if lone and not self.container:
            raise ValueError(f"runtime.{lone} is of a container: set runtime=apptainer or runtime=docker, or leave it out")
        return self


class DataConfig(Section):
    """What the model reads. seq_len counts positions, padding included."""

    name: Literal["synthetic", "text", "hf", "instructions"]
    seq_len: Annotated[int, Field(ge=2)]
    files: Annotated[tuple[str, ...], Tuple] = Field(
        (), description="of text or records; folders or globs; none: made of Python's own library sources"
    )
    path: str | None = Field(None, description="hf, instructions: a datasets folder, script-free hub name, or JSONL, Parquet or text file")
    split: str = "train"
    field: str = Field("text", description="data=hf: the column that holds the text")
    tokenizer: str = Field("bytes", description="'bytes', or a folder or hub name of a transformers tokenizer")
    pack: bool = Field(
        True,
        description="join documents and cut them into full sequences; instructions: fill sequences with records that do not see each other; "
        "false: one of them a sequence, padded",
    )

    seq_len_schedule: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Tuple] = Field(
        (), description="lengths that the steps pass through in equal shares, each greater than the one before, the last seq_len; none: all have it"
    )

    @property
    def isolates(self) -> bool:
        """Whether a sequence holds several records, none of which may see another."""
        return self.name == "instructions" and self.pack

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        if self.name == "instructions" and self.files and self.path:
            raise ValueError(f"data.files={list(self.files)} and data.path={self.path}: leave one of them out")
        return self

    @model_validator(mode="after")
    def _growing(self) -> DataConfig:
        lengths = self.seq_len_schedule
        if not lengths:
            return self
        if list(lengths) != sorted(set(lengths)) or lengths[-1] != self.seq_len:
            raise ValueError(f"data.seq_len_schedule={list(lengths)} must grow from length to length and end at data.seq_len={self.seq_len}")
        if self.name == "instructions":
            raise ValueError("data.seq_len_schedule cuts sequences, and of data=instructions that would be the answers: leave it out")
        return self


class BatchConfig(Section):
    """Samples per rank and forward pass, and how many such passes one optimizer step accumulates."""

    micro: PositiveInt
    accumulation: PositiveInt


class MeasureConfig(Section):
    """The protocol: steps to warm up and to measure, fresh-process repeats, limits."""

    name: str
    warmup_steps: Annotated[int, Field(ge=1)]
    steps: PositiveInt
    repeats: PositiveInt
    tokens: PositiveInt | None = Field(
        None, description="train each repeat on so many, warm-up included, and report how its loss fell; decides `steps`. None: no such budget"
    )
    stop_at_interval_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="end a repeat before all steps, and the run before all repeats, once half the 95 % interval of tokens_per_s, over that repeat's "
        "steps or over the repeats, is less than this share of it; None: all steps of all repeats",
    )
    min_steps: PositiveInt = Field(40, description="measured before the interval may end a repeat; 40 are the 10 batches of 4 that it is drawn from")
    profile: bool = Field(description="trace a few more steps after the last repeat's measured window")
    profile_steps: PositiveInt = 2
    phases: bool = Field(True, description="time forward, backward and optimizer apart")
    timeout_s: PositiveFloat
    no_progress_timeout_s: PositiveFloat
    threads_per_rank: PositiveInt | None = Field(None, description="None: the host's cores shared out on cpu, torch's default on cuda")

    @model_validator(mode="after")
    def _one_end(self) -> MeasureConfig:
        if self.tokens and self.stop_at_interval_share:
            raise ValueError(
                f"measure.tokens={self.tokens} says where a run ends, and measure.stop_at_interval_share={self.stop_at_interval_share} might end it "
                "before: leave one of them out"
            )
        return self


class TrackingConfig(Section):
    """Where results are copied to after each run; the run's folder always has them."""

    name: Literal["mlflow", "none"]
    uri: str | None = None
    experiment: str = "llmexp"
    timeout_s: PositiveFloat = 60.0


class SweepConfig(Section):
    """The sweep that a run belongs to; its name is its folder below outputs/."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    outputs: str = "outputs"
    side_by_side: bool = Field(True, description="runs that need fewer GPUs than this machine has share it where that disturbs none")


class NodeConfig(Section):
    """Which of a run's machines this is, where no SLURM job says so."""

    rank: NonNegativeInt | None = Field(None, description="from 0; 0 measures and records")
    address: str | None = Field(None, description="host name or address of machine 0, as the others reach it")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(None, description="on which machine 0 meets the others")


class BudgetConfig(Section):
    """What a sweep may be expected to cost when it starts; None: any amount."""

    device_hours: PositiveFloat | None = None
    usd: PositiveFloat | None = Field(None, description="at hardware.price_per_device_hour_usd")
    when_over: Literal["refuse", "trim"] = Field("refuse", description="start nothing; or only the cheapest runs that it allows")


class RunConfig(Section):
    """One run, fully composed: what Hydra's groups and the command line gave."""

    method: str
    task: TaskConfig
    model: ModelConfig
    hardware: HardwareConfig
    engine: EngineConfig
    parallelism: ParallelismConfig
    optimizer: OptimizerConfig
    precision: PrecisionConfig
    data: DataConfig
    batch: BatchConfig
    measure: MeasureConfig
    runtime: RuntimeConfig
    adapter: AdapterConfig = AdapterConfig()
    memory: MemoryConfig = MemoryConfig()
    kernels: KernelsConfig = KernelsConfig()
    node: NodeConfig = NodeConfig()
    tracking: TrackingConfig
    sweep: SweepConfig
    budget: BudgetConfig = BudgetConfig()
    seed: NonNegativeInt
    force: bool = Field(description="start even where memory is certain to run out")
    rerun: Literal["none", "failed", "stale", "all"] = Field(description="which earlier results of the same run to measure again")
