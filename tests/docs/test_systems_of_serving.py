"""The literature's systems: each has a knob that an engine has, or none, and a word on what was seen of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from documents import ROOT

from llmexp.registry import engine_names, get_engine
from llmexp.serving.engine import ServingEngine

KNOBS = ROOT / "docs" / "servers.md", "Systems of serving behind the knobs"
EVIDENCE = ROOT / "docs" / "results" / "serving.md", "Systems of serving"
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
    """A row of the table of knobs."""

    system: str
    knob: str
    fidelity: str


def cells(page: Path, heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading, without the table's head."""
    section = page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows[1:]]


LINES = [Line(*row) for row in cells(*KNOBS)]


@pytest.mark.parametrize("system", [" ".join(name.split()) for name in SYSTEMS.split(";")])
def test_a_system_has_a_line_in_both_tables(system: str) -> None:
    assert any(system in line.system for line in LINES)
    assert any(system in row[0] and row[1] for row in cells(*EVIDENCE))


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.system} {line.fidelity}"[:60])
def test_a_line_names_what_there_is(line: Line) -> None:
    assert line.fidelity in FIDELITIES
    assert (line.knob == "") == (line.fidelity == "missing")
    engines = [get_engine("serve", name) for name in engine_names("serve")]
    knobs = {knob for engine in engines if isinstance(engine, ServingEngine) for knob in engine.knobs}
    assert set(re.findall(r"engine\.options\.(\w+)", line.knob)) <= knobs
    assert set(re.findall(r"engine=(\w+)", line.knob)) <= set(engine_names("serve"))


def test_the_evidence_names_tests_that_there_are() -> None:
    named = {test for _, seen in cells(*EVIDENCE) for test in re.findall(r"test_\w+\.py", seen)}
    assert named
    assert named <= TESTS
