"""The arithmetic of parallel degrees: this module alone checks them against the devices, the model and the batch."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm, prod

from llmexp.errors import DegreesError
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import ModelShape, RankPart, shape_of
from llmexp.record.result import Batch
from llmexp.record.samples import Record
from llmexp.schema import CpKind, DenseModel, EndsAsLayers, MixtralModel, SizedModel
from llmexp.schema.run import PYTHON
from llmexp.training.config import TrainingConfig
from llmexp.training.plan import schedules
from llmexp.training.plan.degrees import DEGREES, ENDS, RANK_ORDER, WITH_RANKS, Cut
from llmexp.training.plan.schedules import SCHEDULES, Passes, Pipeline


class ParallelDims(Record):
    """Valid degrees of parallelism, and how each is carried out; the product of those with ranks is world_size.

    The ranks that share out experts (ep) are neighbors among those of dp x cp, and of tp where etp cuts each expert
    over fewer ranks.
    """

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    sequence: bool = False
    virtual_stages: int = 1
    schedule: str | None = None
    cp_kind: CpKind | None = None
    ends_as_layers: EndsAsLayers | None = None
    etp: int | None = None
    shard: int | None = None

    @property
    def world_size(self) -> int:
        """The number of all ranks."""
        return prod(self.degrees[name] for name in WITH_RANKS)

    @property
    def degrees(self) -> dict[str, int]:
        """All degrees by name."""
        return {name: getattr(self, name) for name in DEGREES}

    @property
    def same_parameters(self) -> int:
        """The number of ranks that hold the same part of the model, experts aside."""
        return prod(self.degrees[name] for name in WITH_RANKS if not DEGREES[name].cuts_parameters)

    @property
    def sharers(self) -> int:
        """The number of ranks that Z partitions state over: all that hold the same part, or those of a shard group."""
        return self.shard or self.same_parameters

    @property
    def expert_tensor(self) -> int:
        """The number of ranks that each expert is cut over."""
        return self.etp or self.tp

    @property
    def same_experts(self) -> int:
        """The number of ranks that hold the same experts."""
        return self.same_parameters * self.tp // (self.expert_tensor * self.ep)

    @property
    def rank_part(self) -> RankPart:
        """How a rank's part is cut from the model."""
        embedding, head = (self.ends_as_layers in (name, "both") for name in ("embedding", "head"))
        return RankPart(self.tp, self.pp, self.ep, self.expert_tensor, self.v_shaped, embedding, head)

    def parts(self, what: Cut) -> int:
        """Return the number of parts into which the degrees cut this."""
        return prod(degree for name, degree in self.degrees.items() if DEGREES[name].cuts == what)

    def cutting(self, *what: Cut) -> dict[str, int]:
        """Return the degrees that are not 1 and cut any of these, by name."""
        return {name: size for name, size in self.degrees.items() if size > 1 and DEGREES[name].cuts in what}

    @property
    def arithmetic(self) -> str:
        """The product of the degrees in words."""
        kinds = {"cp": f" ({self.cp_kind})" if self.cp_kind else ""}
        product = " x ".join(f"{name} {self.degrees[name]}{kinds.get(name, '')}" for name in WITH_RANKS)
        return f"{product} = {self.world_size} rank{'s' * (self.world_size > 1)}"

    @property
    def layout(self) -> str:
        """The degrees that are not 1, without dp, and how they are carried out; empty for data parallelism alone."""
        stages = f" virtual stages {self.virtual_stages}" * (self.virtual_stages > 1)
        stages += f" {self.ends_as_layers} as layers" * (self.ends_as_layers is not None)
        more = {"pp": stages, "ep": f" etp {self.etp}" * (self.etp is not None)}
        sizes = {name: size for name, size in self.degrees.items() if size > 1 and name != "dp"}
        named = [f"shard {self.shard}"] * (self.shard is not None)
        named += [f"{name} {size}{more.get(name, '')}" for name, size in sizes.items()]
        return " ".join(filter(None, [*named, self.cp_kind, self.schedule, "sequence" * self.sequence]))

    @property
    def v_shaped(self) -> bool:
        """Tell whether the first rank of a pipeline holds the last stage too."""
        return self.schedule is not None and SCHEDULES[self.schedule].v_shaped

    @property
    def cut(self) -> str:
        """The degrees that cut the model into parts, in words."""
        cutting = {name: row for name, row in DEGREES.items() if row.cuts_parameters}
        sizes = self.degrees
        return ", ".join(f"{name} {sizes[name]}" for name, row in cutting.items() if row.has_ranks or sizes[name] > 1)

    @classmethod
    def of(cls, config: TrainingConfig, passes: Mapping[str, Passes], cp_chunks: Mapping[CpKind, int]) -> ParallelDims:
        """Take the degrees of a configuration; a dp of null fills all devices, or is 1 with engine.launcher=python.

        `passes` says for each of the engine's schedules which numbers of passes it takes.
        `cp_chunks` has the engine's kinds of context parallelism, the default first, each with the chunks of a sequence
        that a rank takes.
        Degrees that do not fit raise DegreesError with the arithmetic.
        """
        degrees = config.parallelism
        kind = degrees.cp_kind or next(iter(cp_chunks), None) if degrees.cp > 1 else None
        a_replica = {name: getattr(degrees, name) for name in WITH_RANKS if name != "dp"}
        devices, ranks = _devices(config), prod(a_replica.values())
        if degrees.dp is None and devices % ranks:
            raise DegreesError(
                f"parallelism: {_product(a_replica)} = {ranks} does not "
                f"divide the {devices} devices of hardware={config.hardware.name}; "
                f"set parallelism.dp or degrees whose product divides {devices}"
            )
        _check_sizes(config)
        _check_tensor(config)
        _check_sequence(config, cp_chunks.get(kind, 1) if kind else 1)
        _check_context(config, kind)
        chosen = {"dp": degrees.dp or devices // ranks, "schedule": _schedule(config, passes), "cp_kind": kind}
        etp = {"etp": None if degrees.etp == degrees.tp else degrees.etp}
        dims = cls(**(degrees.model_dump() | chosen | etp))
        _check_shard(dims)
        _check_experts(config, dims)
        return dims

    def replica_of(self, rank: int) -> int:
        """Return the data-parallel replica of a rank."""
        nearer = RANK_ORDER[: RANK_ORDER.index("dp")]
        return rank // prod(self.degrees[name] for name in nearer) % self.dp

    def batch(self, micro: int, accumulation: int) -> Batch:
        """Return the batch sizes: samples per rank and pass, passes per step, and samples per step of all replicas."""
        return Batch(micro=micro, accumulation=accumulation, global_=self.dp * micro * accumulation)


def _devices(config: TrainingConfig) -> int:
    """Return how many devices get a rank: all of them, or one with engine.launcher=python.

    Raise DegreesError where that launcher is asked for more than one rank.
    """
    degrees, hardware = config.parallelism, config.hardware
    if config.engine.launcher != PYTHON:
        return hardware.devices_per_node * hardware.nodes
    asked = {name: getattr(degrees, name) or 1 for name in WITH_RANKS}
    if (ranks := prod(asked.values())) > 1 or hardware.nodes > 1:
        raise DegreesError(
            f"engine.launcher={PYTHON} starts one process, but parallelism is {_product(asked)} = {ranks} ranks and "
            f"hardware.nodes={hardware.nodes}: set all of them to 1, or engine.launcher=spawn"
        )
    return 1


def _product(degrees: Mapping[str, int]) -> str:
    return " x ".join(f"{name} {degree}" for name, degree in degrees.items())


def _check_sizes(config: TrainingConfig) -> None:
    """Raise DegreesError where a degree does not divide a size of the model; a model of the hub tells none."""
    sizes = _sizes(config)
    for name, row in DEGREES.items():
        for field in row.divides:
            if name == "pp":
                _check_stages(config, _layers(config))
            else:
                _check_divides(name, getattr(config.parallelism, name), f"model.{field}", getattr(sizes, field, None))


def _sizes(config: TrainingConfig) -> SizedModel | ModelShape | None:
    return config.model if isinstance(config.model, SizedModel) else shape_of(config.model)


def _layers(config: TrainingConfig) -> int | None:
    """Return the number of layers; None where only the built model has it."""
    if sizes := _sizes(config):
        return sizes.num_layers
    made = _architecture(config)
    return made.num_layers if made else None


def _architecture(config: TrainingConfig) -> Architecture | None:
    """Return a model by its kinds of layers; None where only the built model has them."""
    try:
        return architecture_of(config.model)
    except UncountedError:
        return None


def _check_stages(config: TrainingConfig, layers: int | None) -> None:
    """Raise DegreesError where the layers, with the ends that count as one each, do not make even stages."""
    degrees = config.parallelism
    if layers is None:
        return
    ends = degrees.ends_as_layers
    counted = layers + ENDS[ends]
    if ends is None:
        even = [name for name, more in ENDS.items() if name and (layers + more) % degrees.pp == 0]
        instead = [f"; with parallelism.ends_as_layers={name} it is {layers + ENDS[name]}" for name in even[-1:]]
        _check_divides("pp", degrees.pp, "model.num_layers", layers, "".join(instead))
        return
    field = f"model.num_layers={layers} + {ENDS[ends]} (ends_as_layers={ends})"
    _check_divides("pp", degrees.pp, field, counted)
    if counted // degrees.pp < 2 <= degrees.pp:
        raise DegreesError(
            f"parallelism.ends_as_layers={ends}: {counted} / pp {degrees.pp} = 1 leaves a rank without a layer: set a "
            "smaller parallelism.pp"
        )


def _check_tensor(config: TrainingConfig) -> None:
    if config.parallelism.sequence and config.parallelism.tp == 1:
        raise DegreesError(
            "parallelism.sequence=true cuts the sequence over the tensor-parallel ranks, and parallelism.tp=1: "
            "set parallelism.tp"
        )
    made = None if _sizes(config) else _architecture(config)
    if made and made.cuts_evenly:
        for size in sorted({made.vocab_size}.union(*made.heads)):
            named = "vocab_size" if size == made.vocab_size else "heads"
            _check_divides("tp", config.parallelism.tp, f"{named} of model={config.model.name}", size)


def _check_sequence(config: TrainingConfig, chunks: int) -> None:
    degrees, seq_len = config.parallelism, config.data.seq_len
    a_rank = lcm(chunks, degrees.tp if degrees.sequence else 1)
    parts = degrees.cp * a_rank
    if seq_len % parts:
        below = seq_len // parts * parts
        nearest = " or ".join(f"data.seq_len={size}" for size in (below, below + parts) if size)
        cutting = (
            f"parallelism.cp={degrees.cp}"
            + f" with parallelism.tp={degrees.tp} and parallelism.sequence=true" * degrees.sequence
        )
        raise DegreesError(
            f"{cutting} cuts data.seq_len={seq_len} into {degrees.cp} x {a_rank} = {parts} parts, which does not "
            f"come out even: set {nearest}"
        )


def _check_context(config: TrainingConfig, kind: CpKind | None) -> None:
    """Raise DegreesError where ulysses cannot share out a rank's heads; ranks may share a key and value head."""
    degrees = config.parallelism
    if degrees.cp_kind and degrees.cp == 1:
        raise DegreesError(
            f"parallelism.cp_kind={degrees.cp_kind} belongs to a sequence cut over ranks, and parallelism.cp=1: "
            "set parallelism.cp"
        )
    if kind != "ulysses":
        return
    for all_heads, all_shared in _heads(config):
        heads, shared = all_heads // degrees.tp, all_shared // degrees.tp
        valid = [cp for cp in range(1, heads + 1) if heads % cp == 0 and (shared % cp == 0 or cp % shared == 0)]
        if degrees.cp not in valid:
            raise DegreesError(
                f"parallelism.cp={degrees.cp}: ulysses shares out model.num_heads={all_heads} and "
                f"model.num_kv_heads={all_shared} / tp {degrees.tp} = {heads} and {shared} heads: "
                f"choices are {', '.join(map(str, valid))}"
            )


def _heads(config: TrainingConfig) -> set[tuple[int, int]]:
    """Return the heads of queries and those of keys and values, of each kind of layer; none where they are unknown."""
    if shape := shape_of(config.model):
        return {(shape.num_heads, shape.num_kv_heads)}
    made = _architecture(config)
    return made.heads if made else set()


def _schedule(config: TrainingConfig, passes: Mapping[str, Passes]) -> str | None:
    """Return the schedule that orders the passes; None without a pipeline."""
    degrees = config.parallelism
    if degrees.pp == 1:
        _check_nothing_of_a_pipeline(config)
        return None
    known = _layers(config)
    layers = None if known is None else known + ENDS[degrees.ends_as_layers]
    _check_divides(
        "virtual_stages",
        degrees.virtual_stages,
        f"the {layers} layers{' (with its ends)' * (degrees.ends_as_layers is not None)} / pp {degrees.pp}",
        layers and layers // degrees.pp,
    )
    schedule = degrees.schedule or schedules.default_schedule(degrees.virtual_stages)
    schedules.check(Pipeline(schedule, degrees.pp, degrees.virtual_stages, config.batch.accumulation), passes)
    return schedule


def _check_nothing_of_a_pipeline(config: TrainingConfig) -> None:
    degrees = config.parallelism
    if degrees.virtual_stages > 1:
        raise DegreesError(
            f"parallelism.virtual_stages={degrees.virtual_stages} applies to a pipeline, and parallelism.pp=1: "
            "set parallelism.pp"
        )
    if degrees.schedule:
        raise DegreesError(
            f"parallelism.schedule={degrees.schedule} orders the passes of a pipeline, and parallelism.pp=1: "
            "set parallelism.pp"
        )
    if degrees.ends_as_layers:
        raise DegreesError(
            f"parallelism.ends_as_layers={degrees.ends_as_layers} is about the stages of a pipeline, and "
            "parallelism.pp=1: set parallelism.pp"
        )


def _check_shard(dims: ParallelDims) -> None:
    if dims.shard and dims.dp % dims.shard:
        valid = ", ".join(str(size) for size in range(1, dims.dp + 1) if dims.dp % size == 0)
        raise DegreesError(
            f"parallelism.shard={dims.shard} does not divide parallelism.dp={dims.dp}: choices are {valid}"
        )


def _check_experts(config: TrainingConfig, dims: ParallelDims) -> None:
    ep, model = dims.ep, config.model
    experts = model.num_experts if isinstance(model, MixtralModel) else None
    if ep > 1 and isinstance(model, DenseModel):
        raise DegreesError(
            f"parallelism.ep={ep} shares out experts, and model={model.name} has none: set parallelism.ep=1, or "
            "model=mixtral"
        )
    _check_expert_tensor(config, dims)
    fewer = dims.tp // dims.expert_tensor
    replicas = dims.same_parameters * fewer
    if replicas % ep:
        above = -(-replicas // ep) * ep
        below = max(degree for degree in range(1, ep) if replicas % degree == 0 and (experts or 0) % degree == 0)
        more = [f"parallelism.dp={above // (dims.cp * fewer)}"] * (above % (dims.cp * fewer) == 0)
        more += ["parallelism.etp=1"] * (fewer < dims.tp and dims.same_parameters * dims.tp % ep == 0)
        over = f"dp {dims.dp} x cp {dims.cp}" + f" x tp {dims.tp} / etp {dims.etp}" * (dims.etp is not None)
        raise DegreesError(
            f"parallelism.ep={ep} shares out experts over the ranks of {over} = {replicas}, "
            f"which it does not divide: set {' or '.join([f'parallelism.ep={below}', *more])}"
        )


def _check_expert_tensor(config: TrainingConfig, dims: ParallelDims) -> None:
    if dims.etp is None:
        return
    if isinstance(config.model, DenseModel):
        raise DegreesError(
            f"parallelism.etp={dims.etp} cuts experts, and model={config.model.name} has none: leave it out, or set "
            "model=mixtral"
        )
    if dims.tp % dims.etp:
        valid = ", ".join(str(size) for size in range(1, dims.tp + 1) if dims.tp % size == 0)
        raise DegreesError(
            f"parallelism.etp={dims.etp} does not divide parallelism.tp={dims.tp}, whose ranks cut an expert: choices "
            f"are {valid}"
        )


def _check_divides(name: str, degree: int, field: str, size: int | None, instead: str = "") -> None:
    if size is not None and size % degree:
        valid = ", ".join(str(d) for d in range(1, min(size, 64) + 1) if size % d == 0)
        raise DegreesError(f"parallelism.{name}={degree} does not divide {field}={size}: choices are {valid}{instead}")
