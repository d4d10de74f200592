"""The literature's systems: each has words that plan a run, or none with the reason, and tests that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from documents import ROOT
from planning import make_plan

from llmexp.cli.arguments import COMMAND_NAMES
from llmexp.registry import engine_names, get_engine
from llmexp.serving.engine import ServingEngine

PAGE = ROOT / "docs" / "systems.md"
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
FIDELITIES = {"exact", "descendant", "nearest", "missing"}
# Of the paper and of the review.
TRAINING = """
DeepSpeed; Megatron-LM; PTD-P; 3D parallelism; data parallelism; tensor parallelism; pipeline parallelism;
sequence parallelism of Megatron; Ring Self-Attention; ZeRO-1; ZeRO-2; ZeRO-3; ZeRO-R; ZeRO-Offload;
delayed parameter update; CPU Adam; ZeRO-Infinity; memory-centric tiling; bandwidth-centric partitioning;
overlap-centric design; activation offloading; optimizer offloading; parameter offloading; activation recomputation;
selective recomputation; Checkmate; Megatron-Turing NLG; sublinear memory; 4-bit weights with double quantization; NF4;
FlashAttention; PEFT; full fine-tuning; LoRA; QLoRA; prompt tuning; mixed-precision training; bf16 weights; NVLink;
collectives; alignment of matrix products; copies between host and device; traces by module; AIPerf; DDL-Bench; GPipe;
LightSeq2; CoLLiE; search for a policy; NLP-Perf; LLMCompass; SwapAdvisor; dynamic batch loading; GrowLength;
AlphaTuning; QFT; Lion; LOMO; AdaLomo; AdamW; Cramming; SWARM; stage traffic in 8 bits; FlexFlow; Alpa; Colossal-AI;
FP8-LM; Transformer Engine; HAO; over the internet; experts of a crowd; LightSeq2's mixed-precision trainer;
LightSeq2's plan of buffers; PyTorch; TensorFlow; scaling laws
"""
SERVING = """
vLLM; PagedAttention; LightLLM; token attention; int8 KV cache; TGI; continuous batching; DeepSpeed Inference;
ZeRO-Inference; FlexGen; NLP-Fast; TurboTransformers; PetS; PETALS; LightSeq; EET; ByteTransformer; FasterTransformer;
Splitwise; LLMCompass; PowerInfer; SwapAdvisor; Eliseev and Mazur; staged speculative decoding; mixtures of experts;
TensorFlow-Serving; DFX; llama.cpp; NF4; LLM.int8; FineQuant; fp8 weights; GPTQ; AWQ; FPTQ; QuantEase; SpQR;
HQQ; Norm Tweaking; ZeroQuant; LLM-QAT; QMoE; AlphaTuning; SparseGPT; Sheared LLaMA; CoFiPruning; LLM-Pruner
"""
OTHERS = """
token streaming; hierarchical search; holistic partitioning; zero skipping; predictors of active neurons; allocator;
thread blocks; expert cache; experts shared out; Accelerate; TensorRT; XLA; Fairseq; LLMPerf; MLPerf; HELM;
sparse attention; dynamic quantization; lossless compression; parallelism that changes; NCCL_P2P_DISABLE; GPUDirect;
dynamic batches; DeepSpeed Transformer; padding-free; ByteTransformer's fused attention; batch-reduction kernels; PIE;
batches by length; cache replay; dynamic blockwise quantization; EET's memory; outlier-aware; binary codes; GPipe;
hardware reconfigured; batches without padding; three processes; double quantization; double quantization, NF4
"""


@dataclass(frozen=True)
class Line:
    """A row of the page's tables."""

    heading: str
    system: str
    words: str
    fidelity: str
    seen: str

    def __str__(self) -> str:
        return self.system[:60]

    @property
    def commands(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.words)


def lines(page: Path) -> Iterator[Line]:
    for section in page.read_text().split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
        yield from (Line(heading, *(cell.strip() for cell in row[1:-1].split("|"))) for row in rows)


LINES = list(lines(PAGE))
TRAINED = [line for line in LINES if line.heading != "Serving"]
PLANNED = [command for line in TRAINED for command in line.commands if "=" in command.split()[0]]


@pytest.mark.parametrize("system", [" ".join(name.split()) for name in f"{TRAINING};{SERVING};{OTHERS}".split(";")])
def test_a_system_has_a_line(system: str) -> None:
    assert any(system in line.system for line in LINES)


@pytest.mark.parametrize("line", LINES, ids=str)
def test_a_line_names_what_there_is(line: Line) -> None:
    assert line.fidelity in FIDELITIES
    assert (line.words == "") == (line.fidelity == "missing")
    assert line.seen
    assert set(re.findall(r"test_\w+\.py", line.seen)) <= TESTS
    assert {words.split()[1] for words in line.commands if words.startswith("llmexp ")} <= set(COMMAND_NAMES)


@pytest.mark.parametrize("line", [line for line in LINES if line.heading == "Serving"], ids=str)
def test_a_knob_of_serving_is_one_that_an_engine_has(line: Line) -> None:
    engines = [get_engine("serve", name) for name in engine_names("serve")]
    knobs = {knob for engine in engines if isinstance(engine, ServingEngine) for knob in engine.knobs}
    assert set(re.findall(r"engine\.options\.(\w+)", line.words)) <= knobs
    assert set(re.findall(r"engine=(\w+)", line.words)) <= set(engine_names("serve"))


@pytest.mark.parametrize("words", PLANNED)
def test_the_words_of_training_plan_a_run(words: str) -> None:
    typed = shlex.split(words)
    base = ["hardware=a800", "model=7b"]
    given = {word.partition("=")[0] for word in typed}
    plan = make_plan(*(word for word in base if word.partition("=")[0] not in given), *typed)
    assert plan.skip is None
