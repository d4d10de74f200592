"""The table of the literature's systems: each is there, with a knob that an engine has and evidence that there is."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from documents import ROOT

from llmexp.registry import engine_names, get_engine
from llmexp.serving.engine import ServingEngine

PAGE = ROOT / "docs" / "systems.md"
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
FIDELITIES = {"exact", "descendant", "nearest", "missing"}
# Of the paper and of the review, those that serve models, or make them smaller to be served.
SYSTEMS = """
vLLM; PagedAttention; LightLLM; token attention; int8 KV cache; TGI; continuous batching; DeepSpeed Inference;
ZeRO-Inference; FlexGen; NLP-Fast; TurboTransformers; PetS; PETALS; LightSeq; EET; ByteTransformer; FasterTransformer;
Splitwise; LLMCompass; PowerInfer; SwapAdvisor; Eliseev and Mazur; staged speculative decoding; mixtures of experts;
TensorFlow-Serving; DFX; llama.cpp; NF4; LLM.int8; FineQuant; fp8 weights; GPTQ; AWQ; FPTQ; QuantEase; SpQR;
Norm Tweaking; ZeroQuant; LLM-QAT; QMoE; AlphaTuning; SparseGPT; Sheared LLaMA; CoFiPruning; LLM-Pruner
"""


@dataclass(frozen=True)
class Line:
    """A row of one of the page's tables."""

    system: str
    knob: str
    fidelity: str
    seen: str


def lines() -> list[Line]:
    found = []
    for text in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if text.startswith("| ") and len(cells) == 4 and cells[0] != "system":
            found.append(Line(*cells))
    return found


@pytest.mark.parametrize("system", [" ".join(name.split()) for name in SYSTEMS.split(";")])
def test_a_system_has_a_line(system: str) -> None:
    assert any(system in line.system for line in lines())


@pytest.mark.parametrize("line", lines(), ids=lambda line: f"{line.system} {line.fidelity}"[:60])
def test_a_line_names_what_there_is(line: Line) -> None:
    assert line.fidelity in FIDELITIES
    assert (line.knob == "") == (line.fidelity == "missing")
    assert line.seen
    assert set(re.findall(r"test_\w+\.py", line.seen)) <= TESTS
    engines = [get_engine("serve", name) for name in engine_names("serve")]
    knobs = {knob for engine in engines if isinstance(engine, ServingEngine) for knob in engine.knobs}
    assert set(re.findall(r"engine\.options\.(\w+)", line.knob)) <= knobs
    assert set(re.findall(r"engine=(\w+)", line.knob)) <= set(engine_names("serve"))
