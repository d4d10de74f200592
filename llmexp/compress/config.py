"""The sections of task=compress: how a model is made smaller, and the text by which that is done and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from llmexp.schema.model import HfModel
from llmexp.schema.run import EngineConfig, MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.section import Names, NonNegativeInt, PositiveFloat, PositiveInt, Section, Steps, Tuple
from llmexp.schema.tagged import Tagged

WeightFormat = Literal["int2", "int3", "int4", "int8", "fp8", "mxfp4", "nvfp4"]
ActivationFormat = Literal["int8", "fp8", "fp8_static", "fp4"]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
# The tokenizer of UTF-8 bytes, which is no place.
BYTES_TOKENIZER = "bytes"
_INTEGERS = ("int2", "int3", "int4", "int8")
# The formats of weights that each method writes, and of activations that there are beside these weights.
_WEIGHTS_OF: dict[str, tuple[str, ...]] = {
    "rtn": (*_INTEGERS, "fp8", "mxfp4", "nvfp4"),
    "gptq": (*_INTEGERS, "fp8"),
    "smoothquant": ("int4", "int8"),
    "autoround": _INTEGERS,
    "awq": ("int4", "int8"),
    "hqq": _INTEGERS,
}
_ACTIVATIONS_OF: dict[str, tuple[str, ...]] = {
    "int4": ("int8", "fp8"),
    "int8": ("int8",),
    "fp8": ("fp8", "fp8_static"),
    "mxfp4": ("fp4",),
    "nvfp4": ("fp4",),
}
# The methods beside which activations stay as the model computes them.
_WEIGHTS_ALONE = ("awq", "hqq")
# The methods that can leave all but experts alone.
_OF_EXPERTS = ("rtn", "gptq")
_HALF_OF_FOUR = 0.5
# Weights that share a scale, where the format says how many.
_GROUP_OF = {"mxfp4": 32, "nvfp4": 16}


class Quantize(Tagged):
    """Weights, and where it is said activations, in fewer bits."""

    kinds = ("compress=rtn", "compress=gptq")
    said = "compress={name} quantizes"

    name: str
    method: Literal["rtn", "gptq", "smoothquant", "autoround", "awq", "hqq"]
    weights: WeightFormat
    activations: ActivationFormat | None = Field(
        None,
        description=(
            "None: as the model computes; fp8_static: by scales of the calibration text; fp4: as mxfp4 or nvfp4 weights"
        ),
    )
    group_size: PositiveInt | None = Field(None, description="weights that share a scale; None: an output channel")
    symmetric: bool = Field(True, description="no zero points; those of hqq are no integers, and others are")
    smoothing: Share | None = Field(None, description="of smoothquant: how much of the range moves into the weights")
    layers: Literal["all", "experts"] = Field(
        "all", description="all matrices of the layers, or those of experts alone"
    )
    norm_steps: NonNegativeInt = Field(
        0, description="steps that train the norms alone afterwards, to the original's distribution of the next token"
    )
    norm_lr: PositiveFloat = 1e-3

    @property
    def words(self) -> str:
        """What is done, in a few words."""
        norms = f", then {self.norm_steps} steps of the norms" if self.norm_steps else ""
        group = f", {self.group_size} a scale" if self.group_size else ""
        zeros = "" if self.symmetric else ", with zero points"
        beside = f", {self.activations} activations" if self.activations else ""
        experts = " of experts alone" if self.layers == "experts" else ""
        return f"{self.method}: {self.weights} weights{experts}{group}{zeros}{beside}{norms}"

    @model_validator(mode="after")
    def _has_formats_that_there_are(self) -> Quantize:
        known = _WEIGHTS_OF[self.method]
        if self.weights not in known:
            raise ValueError(
                f"compress.weights={self.weights}: {self.method} writes {' or '.join(known)}: set one of these"
            )
        beside = () if self.method in _WEIGHTS_ALONE else _ACTIVATIONS_OF.get(self.weights, ())
        if self.activations and self.activations not in beside:
            choices = " or ".join(("null", *beside))
            raise ValueError(
                f"compress.activations={self.activations}: beside {self.weights} weights by {self.method} there is "
                f"{choices}: set compress.activations={choices}"
            )
        return self

    @model_validator(mode="after")
    def _scales_as_its_format_does(self) -> Quantize:
        group, is_integer = _GROUP_OF.get(self.weights), self.weights in _INTEGERS
        if self.group_size and not is_integer and self.group_size != group:
            shared = f"{group} weights share a scale" if group else "the weights of an output channel share a scale"
            raise ValueError(
                f"compress.group_size={self.group_size}: of {self.weights}, {shared}: set compress.group_size=null"
            )
        if not self.symmetric and not is_integer:
            raise ValueError(
                f"compress.symmetric=false: {self.weights} weights have no zero points: set compress.symmetric=true"
            )
        if self.symmetric and self.method == "hqq":
            raise ValueError("compress.symmetric=true: hqq searches for zero points: set compress.symmetric=false")
        return self

    @model_validator(mode="after")
    def _trains_norms_through_what_has_gradients(self) -> Quantize:
        if self.norm_steps and self.activations:
            raise ValueError(
                f"compress.norm_steps={self.norm_steps}: no gradient passes activations that are rounded: set "
                "compress.activations=null, or compress.norm_steps=0"
            )
        if self.norm_steps and self.method == "hqq":
            raise ValueError(
                f"compress.norm_steps={self.norm_steps}: norms train where llm-compressor rounds, and hqq is llmexp's "
                "own: set compress.norm_steps=0"
            )
        return self

    @model_validator(mode="after")
    def _takes_experts_as_they_load(self) -> Quantize:
        if self.layers == "experts" and self.method not in _OF_EXPERTS:
            raise ValueError(
                f"compress.layers=experts: {self.method} takes all layers: choose compress.method="
                f"{' or '.join(_OF_EXPERTS)}"
            )
        if self.layers == "experts" and (self.activations or self.weights not in _INTEGERS):
            raise ValueError(
                f"compress.layers=experts: transformers loads experts of {' or '.join(_INTEGERS)} weights, without "
                "compress.activations: set one of these"
            )
        return self

    @model_validator(mode="after")
    def _smooths_with_smoothquant_alone(self) -> Quantize:
        if self.smoothing and self.method != "smoothquant":
            raise ValueError(
                f"compress.smoothing={self.smoothing:g} belongs to compress.method=smoothquant, and this is "
                f"{self.method}: leave it out"
            )
        if self.method == "smoothquant" and not (self.smoothing and self.activations):
            raise ValueError(
                "compress.method=smoothquant moves the range of activations into weights: set compress.smoothing=0.5 "
                "and compress.activations=int8"
            )
        return self


class Sparsify(Tagged):
    """Single weights set to zero; shapes and bytes stay."""

    kinds = ("compress=sparsegpt", "compress=wanda", "compress=magnitude")
    said = "compress={name} sets weights to zero"

    name: str
    method: Literal["magnitude", "wanda", "sparsegpt"]
    sparsity: Share = Field(description="share of the weights of linear layers that become zero")
    pattern: Literal["free", "2:4"] = Field("free", description="2:4: two of each four neighbors")

    @property
    def words(self) -> str:
        """What is done, in a few words."""
        pattern = "" if self.pattern == "free" else f", in the pattern {self.pattern}"
        return f"{self.method}: {100 * self.sparsity:g} % zeros{pattern}"

    @model_validator(mode="after")
    def _has_two_of_four(self) -> Sparsify:
        if self.pattern == "2:4" and self.sparsity != _HALF_OF_FOUR:
            raise ValueError(
                f"compress.sparsity={self.sparsity:g}: two of four are {_HALF_OF_FOUR:g}: set compress.sparsity="
                f"{_HALF_OF_FOUR:g}, or compress.pattern=free"
            )
        return self


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
    recovery_domains: dict[str, Names] = Field(
        default_factory=dict,
        description=(
            "files, folders or globs of each domain that recovery reads in place of the calibration text, with as many "
            "sequences; 8 documents of each are held out"
        ),
    )
    recovery_shares_every: Steps = Field(
        10, description="steps after which domains get other shares of a batch, by how far each is above its reference"
    )
    recovery_references: dict[str, PositiveFloat] = Field(
        default_factory=dict, description="nats a token that a domain is compared with; left out: the original's"
    )

    @property
    def words(self) -> str:
        """What is done, in a few words."""
        after = f", then {self.recovery_steps} steps of recovery={self.recovery}" if self.recovery_steps else ""
        after += f" on {', '.join(self.recovery_domains)}" if self.recovery_domains else ""
        return f"{self.method}: {100 * self.share:g} % taken out{after}"

    @model_validator(mode="after")
    def _recovers_in_steps(self) -> Prune:
        if (self.recovery == "none") != (self.recovery_steps == 0):
            raise ValueError(
                f"compress.recovery={self.recovery} and compress.recovery_steps={self.recovery_steps}: training that "
                "recovers needs both: set compress.recovery=all, lora or norms with steps, or none with 0"
            )
        return self

    @model_validator(mode="after")
    def _mixes_what_there_is(self) -> Prune:
        names = ", ".join(self.recovery_domains)
        if unknown := sorted(self.recovery_references.keys() - self.recovery_domains.keys()):
            raise ValueError(
                f"compress.recovery_references.{unknown[0]}: there is no such domain: compress.recovery_domains has "
                f"{names or 'none'}"
            )
        if not self.recovery_domains:
            if self.recovery_shares_every != type(self).model_fields["recovery_shares_every"].get_default():
                raise ValueError(
                    f"compress.recovery_shares_every={self.recovery_shares_every}: only compress.recovery_domains has "
                    "shares: leave it out"
                )
            return self
        if empty := next((name for name, patterns in self.recovery_domains.items() if not patterns), None):
            raise ValueError(f"compress.recovery_domains.{empty}=[]: name files, folders or globs")
        if len(self.recovery_domains) == 1 or self.recovery == "none":
            raise ValueError(
                f"compress.recovery_domains={names}: recovery mixes two domains or more: name another, and set "
                "compress.recovery=all, lora or norms"
            )
        if self.recovery_shares_every >= self.recovery_steps:
            raise ValueError(
                f"compress.recovery_shares_every={self.recovery_shares_every}: shares would never change in "
                f"compress.recovery_steps={self.recovery_steps}: set fewer"
            )
        return self


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


class CompressEngineConfig(EngineConfig):
    """The engine that compresses, and the interpreter of the environment that llm-compressor is installed in."""

    python: str | None = Field(
        None, description="interpreter of a separate environment with llm-compressor; None: the ranks' interpreter"
    )

    @field_validator("python")
    @classmethod
    def _without_tilde(cls, python: str | None) -> str | None:
        return str(Path(python).expanduser()) if python else None


class CompressTaskConfig(TaskConfig):
    """A trained model made smaller, and its quality beside the original's."""

    name: Literal["compress"]


class CompressRunConfig(RunConfig):
    """The configuration of a run of task=compress."""

    task: CompressTaskConfig
    engine: CompressEngineConfig
    model: HfModel
    compress: Annotated[Quantize | Sparsify | Prune, Field(discriminator="method")]
    text: CalibrationText
    measure: MeasureConfig

    needs_llm_compressor: ClassVar[frozenset[str]] = frozenset(
        {"rtn", "gptq", "smoothquant", "autoround", "awq", "sparsegpt", "wanda"}
    )

    @field_validator("model", mode="before")
    @classmethod
    def _begins_with_trained_weights(cls, given: Any) -> Any:
        if isinstance(given, dict) and (not given.get("path") or given.get("weights") != "pretrained"):
            raise ValueError("task=compress needs trained weights: set model=<folder>")
        return given

    @property
    def inputs(self) -> tuple[str, ...]:
        """The model's folder, the texts, and the tokenizer's folder."""
        tokenizer = () if self.text.tokenizer == BYTES_TOKENIZER else (self.text.tokenizer,)
        return (self.model.path, *self.text.files, *self.domain_files, *tokenizer)

    @property
    def domain_files(self) -> tuple[str, ...]:
        """The patterns of all domains that recovery reads."""
        domains = self.compress.recovery_domains if isinstance(self.compress, Prune) else {}
        return tuple(pattern for name in sorted(domains) for pattern in domains[name])

    @property
    def uses_llm_compressor(self) -> bool:
        """Tell whether the method is one of llm-compressor's."""
        return self.compress.method in self.needs_llm_compressor

    @property
    def writes_compressed_tensors(self) -> bool:
        """Tell whether the weights that are written need the library of that name to be read."""
        return isinstance(self.compress, Quantize)
