"""What makes a run's figures no fair comparison with a cell of the paper, in words."""

from __future__ import annotations

from llmexp.paper.printed import DTYPE, LORA_RANK, PARAMETERS, SEQ_LEN, WORLD_SIZE, PaperCell
from llmexp.paper.training.cell import settings_unlike
from llmexp.training.report.row import TrainingRow

_OWN_PRECISION = f"the memory that the paper prints is of {DTYPE} parameters and states"


def unlike(row: TrainingRow, cell: PaperCell, engine: str) -> list[str]:
    """Return each difference that can be known; versions are not among them, since the paper states none."""
    config, work = row.plan.config, row.work
    checks = {
        f"{_number(row)} parameters in model {row.model}": _is_other_shape(row),
        f"{row.processes} x {row.hardware} instead of {WORLD_SIZE} x {cell.hardware}": row.hardware != cell.hardware
        or row.processes != WORLD_SIZE,
        f"engine {work['engine']} instead of {engine}": config.engine.name != engine,
        f"{row.seq_len} positions a sample instead of {SEQ_LEN}": row.seq_len != SEQ_LEN,
        f"{row.batch.accumulation} passes a step instead of 1": row.batch.accumulation != 1,
        f"{row.layout} instead of data parallelism alone": bool(row.layout),
        f"data {work['data']}": bool(work["data"]),
        _padding(row): True,
        f"adapter.rank={config.adapter.rank} instead of {LORA_RANK}": bool(row.plan.techniques.adapter)
        and config.adapter.rank != LORA_RANK,
        f"evidence {row.state}: memory is limited, not that of the device": row.state == "emulated",
    }
    differing = [words for words, differs in checks.items() if words and differs]
    return [*differing, *(_explained(setting) for setting in settings_unlike(row))]


def _explained(setting: str) -> str:
    return f"{setting}: {_OWN_PRECISION}" if setting.startswith("precision=") else setting


def _padding(row: TrainingRow) -> str:
    """Say how many of the positions that tokens/s counts are tokens; empty where all are."""
    real, rate = row.metric("real_tokens_per_s"), row.rate
    if not real or not rate or real.mean >= rate.mean:
        return ""
    return f"padding: {real.mean / rate.mean:.0%} of the positions that tokens/s counts are tokens"


def _is_other_shape(row: TrainingRow) -> bool:
    known = PARAMETERS.get(row.model)
    return bool(known and row.plan.parameters and row.plan.parameters != known)


def _number(row: TrainingRow) -> str:
    return f"{(row.plan.parameters or 0) / 1e9:.2f} billion"
