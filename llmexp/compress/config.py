"""The sections of task=compress: how a model is made smaller, and the text by which that is done and judged."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from llmexp.schema.model import HfModel
from llmexp.schema.run import MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.section import NonNegativeInt, PositiveFloat, PositiveInt, Section, Tuple
from llmexp.schema.tagged import Tagged

Weights = Literal["int2", "int3", "int4", "int8", "fp8", "mxfp4", "nvfp4"]
Activations = Literal["int8", "fp8"]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class Quantize(Tagged):
    """Weights, and where it is said activations, in fewer bits."""

    kinds = ("compress=rtn", "compress=gptq")
    said = "compress={name} quantizes"

    name: str
    method: Literal["rtn", "gptq", "smoothquant", "autoround", "hqq", "awq"]
    weights: Weights
    activations: Activations | None = Field(None, description="None: as the model computes")
    group_size: PositiveInt | None = Field(None, description="weights that share a scale; None: an output channel")
    symmetric: bool = True
    smoothing: Share | None = Field(None, description="of smoothquant: how much of the range moves into the weights")


class Sparsify(Tagged):
    """Single weights set to zero; shapes and bytes stay."""

    kinds = ("compress=sparsegpt", "compress=wanda", "compress=magnitude")
    said = "compress={name} sets weights to zero"

    name: str
    method: Literal["magnitude", "wanda", "sparsegpt"]
    sparsity: Share = Field(description="share of the weights of linear layers that become zero")
    pattern: Literal["free", "2:4"] = Field("free", description="2:4: two of each four neighbors")


class Prune(Tagged):
    """Whole channels, heads or layers taken out: the model that is left is smaller and dense."""

    kinds = ("compress=mlp", "compress=heads", "compress=layers")
    said = "compress={name} takes parts out"

    name: str
    method: Literal["mlp", "heads", "layers"]
    share: Share = Field(description="of the channels of each MLP, of the groups of heads, or of the layers")
    recovery: Literal["none", "all", "lora", "norms"] = Field(
        "none", description="what trains afterwards: nothing, all weights, LoRA merged into them, or norms alone"
    )
    recovery_steps: NonNegativeInt = 0
    recovery_lr: PositiveFloat = 1e-3


class CalibrationText(Section):
    """Documents: some calibrate, others, which calibration never sees, judge what came out."""

    files: Annotated[tuple[str, ...], Tuple] = Field(
        (), description="files, folders or globs; empty: the sources of Python's standard library"
    )
    tokenizer: str = Field("bytes", description="'bytes', or a folder or hub name of a transformers tokenizer")
    seq_len: PositiveInt = Field(128, description="tokens of a sequence that calibrates, and of a part of a document")
    calibration_sequences: PositiveInt = 64
    held_out_documents: PositiveInt = 32
    document_tokens: PositiveInt = Field(512, description="read of each held-out document, from its beginning")


class CompressTaskConfig(TaskConfig):
    """A trained model made smaller, and its quality beside the original's."""

    name: Literal["compress"]


class CompressRunConfig(RunConfig):
    """The configuration of a run of task=compress."""

    task: CompressTaskConfig
    model: HfModel
    compress: Annotated[Quantize | Sparsify | Prune, Field(discriminator="method")]
    text: CalibrationText
    measure: MeasureConfig

    needs_llm_compressor: ClassVar[frozenset[str]] = frozenset(
        {"rtn", "gptq", "smoothquant", "autoround", "awq", "sparsegpt", "wanda", "magnitude"}
    )
