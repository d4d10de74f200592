"""The points of a run of microbenchmarks, from its configuration: every benchmark at every size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from llmexp.errors import ConfigError
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.machine import bf16
from llmexp.micro.config import AttentionPoints, GemmPoints, MicroRunConfig, OperatorPoints, OptimizerPoints
from llmexp.micro.plan.micro_plan import MicroPoint

FAMILIES = ("gemm", "memory", "copies", "collectives", "attention", "operators", "optimizer", "disk")


def points_of(config: MicroRunConfig) -> list[MicroPoint]:
    """Return the points in the order in which they are measured.

    Raises ConfigError where there is none, or where a model's sizes are wanted and not known.
    """
    micro, dtypes = config.micro, dtypes_of(config)
    found = [
        *(_gemms(micro.gemm, config, dtypes) if micro.gemm else ()),
        *(_sized("memory", ("triad",), micro.memory.bytes) if micro.memory else ()),
        *(_sized("copies", micro.copies.kinds, micro.copies.bytes) if micro.copies else ()),
        *(_sized("collectives", micro.collectives.kinds, micro.collectives.bytes) if micro.collectives else ()),
        *(_attention(micro.attention, config, dtypes) if micro.attention else ()),
        *(_operators(micro.operators, config, dtypes) if micro.operators else ()),
        *(_steps(micro.optimizer) if micro.optimizer else ()),
        *(_sized("disk", micro.disk.kinds, micro.disk.bytes) if micro.disk else ()),
    ]
    if not found:
        raise ConfigError(f"micro={micro.name} has no points: set one of micro.{', micro.'.join(FAMILIES)}")
    return found


def dtypes_of(config: MicroRunConfig) -> Sequence[str]:
    """Return micro.dtypes, or bf16 on GPUs, and on a CPU fp32 with bf16 where the processor multiplies it."""
    if config.micro.dtypes is not None:
        return config.micro.dtypes
    native = not bf16.lacks(config.hardware.model_dump())
    if config.hardware.device == "cuda":
        return ("bf16",) if native else ("fp32",)
    return ("fp32", "bf16") if native else ("fp32",)


def _sized(family: str, kinds: Sequence[str], sizes: Sequence[int]) -> Iterator[MicroPoint]:
    return (MicroPoint(family=family, kind=kind, sizes={"bytes": size}) for kind, size in product(kinds, sizes))


def _gemms(wanted: GemmPoints, config: MicroRunConfig, dtypes: Sequence[str]) -> Iterator[MicroPoint]:
    shapes = [(m + wanted.m_plus, n, k) for (n, k), m in product(wanted.nk, wanted.m)]
    if wanted.m_of_model:
        shapes += [(m, n, k) for (n, k), m in product(_matrices(_shape(config)), wanted.m_of_model)]
    for dtype, (m, n, k) in product(dtypes, dict.fromkeys(shapes)):
        yield MicroPoint(family="gemm", kind="gemm", dtype=dtype, sizes={"m": m, "n": n, "k": k})


def _matrices(shape: ModelShape) -> list[tuple[int, int]]:
    """Return the outputs and inputs of each different matrix of the model, the output projection last."""
    layers = [(outputs, inputs) for inputs, outputs in shape.matrices.values()]
    return list(dict.fromkeys([*layers, (shape.vocab_size, shape.hidden_size)]))


def _attention(wanted: AttentionPoints, config: MicroRunConfig, dtypes: Sequence[str]) -> Iterator[MicroPoint]:
    named = [kernel for kernel in wanted.kernels if kernel not in ("unfused", "flash")]
    if named and config.hardware.device == "cpu":
        raise ConfigError(f"micro.attention.kernels={','.join(named)}: on cpu there are unfused and flash")
    shape = _shape(config)
    heads = {"batch": wanted.batch, "heads": shape.num_heads, "kv_heads": shape.num_kv_heads}
    for dtype, kernel, seq_len, way in product(dtypes, wanted.kernels, wanted.seq_lens, ("forward", "backward")):
        if kernel != "unfused" and dtype == "fp32" and config.hardware.device == "cuda":
            continue  # the fused kernels of CUDA take no fp32
        yield MicroPoint(
            family="attention",
            kind=f"{kernel}_{way}",
            dtype=dtype,
            sizes=heads | {"seq_len": seq_len, "head_dim": shape.head_dim},
        )


def _operators(wanted: OperatorPoints, config: MicroRunConfig, dtypes: Sequence[str]) -> Iterator[MicroPoint]:
    shape = _shape(config)
    own = {
        "rms_norm": {"hidden": shape.hidden_size},
        "rope": {"heads": shape.num_heads, "kv_heads": shape.num_kv_heads, "head_dim": shape.head_dim},
        "softmax": {"heads": shape.num_heads},  # of the scores, tokens x tokens
        "cross_entropy": {"vocab": shape.vocab_size},
    }
    for dtype, kind, tokens in product(dtypes, wanted.kinds, wanted.tokens):
        yield MicroPoint(family="operators", kind=kind, dtype=dtype, sizes={"tokens": tokens} | own[kind])


def _steps(wanted: OptimizerPoints) -> Iterator[MicroPoint]:
    for place, parameters in product(wanted.places, wanted.parameters):
        yield MicroPoint(family="optimizer", kind=f"adamw_on_{place}", dtype="fp32", sizes={"parameters": parameters})


def _shape(config: MicroRunConfig) -> ModelShape:
    shape = shape_of(config.model)
    if shape is None:
        raise ConfigError(
            f"model={config.model.name}: its sizes are known only once it is built; take one that is given by its "
            "sizes, such as model=7b, or set micro.gemm.m_of_model=[], micro.attention=null and micro.operators=null"
        )
    return shape
