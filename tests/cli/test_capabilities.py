from __future__ import annotations

from pathlib import Path

from llmexp.cli.commands import carry_out

DOCUMENT = Path(__file__).parents[2] / "docs" / "engines.md"


def test_the_documents_table_is_what_the_engines_say(capsys):
    assert carry_out("engines", ["--format", "markdown"]) == 0
    assert capsys.readouterr().out in DOCUMENT.read_text(), (
        "write what `llmexp engines --format markdown` prints into docs/engines.md"
    )


def test_what_is_asked_for_a_machine_is_answered_for_it(capsys):
    assert carry_out("engines", ["hardware=a800", "model=7b", "engine=deepspeed"]) == 0
    told = capsys.readouterr().out
    assert "the flash kernels of CUDA take bf16" not in told
    assert "parallelism.ep=2 shares out experts, and model=7b has none" in told
    assert "megatron" not in told
    assert "model=7b parallelism" not in told
    assert carry_out("engines", ["hardware=a800", "model=7b", "engine=deepspeed", "precision=fp32"]) == 0
    assert "the flash kernels of CUDA take bf16 and fp16, not precision=fp32" in capsys.readouterr().out
