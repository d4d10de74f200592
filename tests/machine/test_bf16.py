from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from planning import make_plan

from llmexp.machine import bf16
from llmexp.training.describe import precision_note

WITHOUT = "flags\t\t: fpu sse2 avx2 avx512f\n"
LINES = {
    "zen 3": "flags\t\t: fpu sse2 avx2\n",
    "ice lake": WITHOUT,
    "zen 4": "processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16\n",
    "sapphire rapids": "flags\t\t: avx512f amx_bf16 amx_tile\n",
    "graviton 2": "Features\t: fp asimd\n",
    "graviton 3": "Features\t: fp asimd bf16\n",
}


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in bf16.ISA_LIMITS:
        monkeypatch.delenv(name, raising=False)
    bf16.cpu_lacks.cache_clear()
    yield
    bf16.cpu_lacks.cache_clear()


@pytest.fixture
def processor(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def have(lines: str) -> None:
        (tmp_path / "cpuinfo").write_text(lines)
        monkeypatch.setattr("llmexp.machine.processor.CPU_INFO", tmp_path / "cpuinfo")

    return have


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("zen 3", "fp32"),
        ("ice lake", "fp32"),
        ("zen 4", "bf16_mixed"),
        ("sapphire rapids", "bf16_mixed"),
        ("graviton 2", "fp32"),
        ("graviton 3", "bf16_mixed"),
    ],
)
def test_auto_follows_the_processors_instructions(processor, name, precision):
    processor(LINES[name])
    config = make_plan("hardware=cpu").config
    assert config.precision.name == precision
    assert precision_note(config).startswith(f"precision=auto is {precision}: ")
    named = make_plan("hardware=cpu", f"precision={precision}")
    assert named.id == make_plan("hardware=cpu").id
    assert (
        named.config.precision.model_copy(update={"chosen_because": config.precision.chosen_because})
        == config.precision
    )


@pytest.mark.parametrize(
    ("limit", "lacks"),
    [
        ("AVX2", True),
        ("avx512_core", True),
        ("SSE41", True),
        ("AVX512_CORE_AMX", False),
        ("AVX512_CORE_BF16", False),
        ("ALL", False),
    ],
)
def test_a_limit_of_onednns_instructions_counts_like_a_processor(processor, monkeypatch, limit, lacks):
    processor(LINES["sapphire rapids"])
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert bool(bf16.cpu_lacks()) is lacks
    assert f"ONEDNN_MAX_CPU_ISA={limit.upper()}" in bf16.cpu_lacks() or not lacks


@pytest.mark.parametrize(("name", "factor"), [("zen 3", "10 or more times"), ("ice lake", "about 4 times")])
def test_bf16_asked_for_without_instructions_is_warned_of_with_the_factor(processor, name, factor):
    processor(LINES[name])
    said = precision_note(make_plan("hardware=cpu", "precision=bf16_pure").config)
    assert said.startswith("precision=bf16_pure: this processor has no bf16 instructions")
    assert f"matrix products take {factor} as long as with precision=fp32" in said


@pytest.mark.parametrize(("words", "name"), [(["precision=fp32"], "zen 3"), (["precision=bf16_mixed"], "zen 4")])
def test_nothing_is_said_of_what_was_asked_for_and_is_there(processor, words, name):
    processor(LINES[name])
    assert precision_note(make_plan("hardware=cpu", *words).config) == ""


@pytest.mark.parametrize(
    ("architecture", "precision"),
    [
        ("sm_75", "fp32"),
        ("sm_80", "bf16_mixed"),
        ("sm_120", "bf16_mixed"),
        ("gfx942", "bf16_mixed"),
        (None, "bf16_mixed"),
    ],
)
def test_auto_follows_a_gpus_architecture(architecture, precision):
    card = {"name": "gpu", "device": "cuda", "device_names": ["Tesla T4"], "architecture": architecture}
    chosen, why = bf16.chosen(card)
    assert chosen == precision
    assert ("Tesla T4 is older than Ampere" in why) is (precision == "fp32")


@pytest.mark.parametrize("name", ["t4", "v100"])
def test_auto_is_fp32_for_a_card_that_is_described_as_older(name):
    assert make_plan(f"hardware={name}").config.precision.name == "fp32"


def test_another_machines_gpu_is_taken_to_have_bf16(processor):
    processor(WITHOUT)
    assert make_plan("hardware=a800").config.precision.name == "bf16_mixed"
