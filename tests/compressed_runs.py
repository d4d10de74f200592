"""Made-up runs of task=compress: real plans of a folder without real weights, and records that they might leave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planning import make_plan

from llmexp.analysis.window import Repeat
from llmexp.compress.metrics import CompressRepeat
from llmexp.compress.plan import CompressPlan
from llmexp.compress.record import CompressionSummary, DocumentSample
from llmexp.compress.task import COMPRESS
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult, RunStatus

SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# Tokens, and nats by the original, of three documents.
READ = ((100, 250.0), (200, 480.0), (300, 780.0))


def trained_folder(path: Path) -> Path:
    """Write a folder with the shape of a small Llama and one weight."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **SIZES}))
    header = json.dumps({"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return path


def compress_plan(*words: str) -> CompressPlan:
    found: Any = make_plan("task=compress", "hardware=cpu", *words)
    assert isinstance(found, CompressPlan)
    return found


def documents(worse: float = 0.1, read: Sequence[tuple[int, float]] = READ) -> list[DocumentSample]:
    """Documents of which the compressed model needs so many nats a token more than the original."""
    return [
        DocumentSample(
            index=index,
            warmup=False,
            t_start_s=index,
            t_end_s=index + 1,
            tokens=tokens,
            nll_original=nll,
            nll=nll + worse * tokens,
            kl=0.05 * tokens,
            agreed=tokens // 2,
        )
        for index, (tokens, nll) in enumerate(read)
    ]


def summary(**changed: Any) -> CompressionSummary:
    known: dict[str, Any] = {
        "window_wall_s": 1.0,
        "peak_rss_bytes": 1,
        "compress_time_s": 2.0,
        "compress_peak_rss_bytes": 2**30,
        "nll_saved": 2.5,
        "parameters": 1000,
        "original_parameters": 1000,
        "compressed_parameters": 800,
        "weight_bits": 4.125,
        "layers_bytes": 500_000,
        "file_bytes": 900_000,
        "original_file_bytes": 4_000_000,
        "sparsity": 0.0,
        "calibration_tokens": 8192,
        "overlap": 0.0,
    }
    return CompressionSummary(rank=0, **known | changed)


def compressed(samples: Sequence[DocumentSample], **changed: Any) -> CompressRepeat:
    return Repeat((summary(**changed),), (), tuple((sample,) for sample in samples))


def write_run(outputs: Path, plan: CompressPlan, samples: Sequence[DocumentSample], **changed: Any) -> RunFolder:
    """Write the folder of a run that ended well."""
    folder = RunFolder(outputs / plan.folder_name)
    folder.write(folder.plan_path, plan)
    repeat = folder.repeat(0)
    repeat.mkdir(parents=True, exist_ok=True)
    (repeat / "samples.0.jsonl").write_text("".join(sample.model_dump_json() + "\n" for sample in samples))
    (repeat / "rank.0.json").write_text(summary(**changed).model_dump_json())
    repeats = [COMPRESS.read(repeat, plan)]
    folder.write(
        folder.result_path,
        result_of(plan, RunStatus.SUCCESS, metrics=COMPRESS.measure(plan, repeats), repeats=1),
    )
    return folder


def result_of(plan: CompressPlan, status: RunStatus, **known: Any) -> RunResult:
    return RunResult(
        id=plan.id,
        stack="0123456789ab",
        status=status,
        task="compress",
        engine="compress",
        hardware="cpu",
        sweep="main",
        processes=1,
        devices=1,
        command=plan.rerun_command,
        **known,
    )
