"""Published layouts of pre-training beside those that advice finds: benchmarks/advice/layouts.csv.

Its columns are those of benchmarks/published.csv; a value of nan is not published. It has every bf16 recipe of NeMo and
Megatron-Bridge for pre-training a model of 8B to 405B whose family is predicted, the newer where both have one, and
torchtitan's tables in bf16 on H100. Layouts in fp8 are left out, as fp8 is not predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from benchmarks.advice.page import share
from benchmarks.advice.searched import FIRST, Searched, rate_of, searched
from benchmarks.prediction.published_rows import Row, published_rows
from llmexp.record.digits import rounded
from llmexp.training.plan.training_plan import TrainingPlan

LAYOUTS = Path(__file__).with_name("layouts.csv")
# Fused kernels of other programs are known to the engine that stands for them, and no part of a layout.
_SAME_KERNELS = ("kernels.liger=false",)
_WIDTH = 120
_HEAD = """\
`benchmarks/advice/layouts.csv` has published layouts with their sources: all bf16 recipes of NeMo and Megatron-Bridge
for models of 8B to 405B whose family is predicted, and torchtitan's tables. Advice gets the model, the cards, the
precision, the samples of a step and the engine that stands for the program. A published layout is found where its
degrees are among those of our first three layouts, or where it fits and is predicted within 3 % of the third.

dp follows from the cards. `v` is virtual stages, `m` the sequences of a pass. Shares are of predicted speeds. `*`: the
plan says that the published run does not fit. `†`: llmexp's engine would not start it. `etp1` are whole experts beside
tp; `+ends` marks pipelines where embedding and head count as a layer each.
"""


def layout_rows() -> list[Row]:
    """Return the published layouts."""
    return published_rows(LAYOUTS)


def all_searched() -> list[Searched]:
    """Search for every published layout."""
    return [searched(row, _SAME_KERNELS) for row in layout_rows()]


def layouts_part(judged: Sequence[Searched]) -> Iterator[str]:
    """Yield the table, and how many were found."""
    planned = [one for one in judged if one.plan]
    found = sum(one.is_found for one in judged)
    first = sum(one.place is not None and one.place <= FIRST for one in judged)
    yield _HEAD
    yield f"Found: {share(found, len(judged))} of {len(judged)}, {first} of them among our first three and the others"
    yield f"as fast as the third. Of the {len(planned)} that llmexp can plan: {share(found, len(planned))}."
    yield f"The longest search took {max(one.seconds for one in judged):.0f} s of a CPU."
    yield ""
    yield "| source | run | published | our first three | place | published of our first | found |"
    yield "|---|---|---|---|---:|---:|---|"
    for one in judged:
        yield f"| {' | '.join(_cells(one))} |"
    yield from _refusals(judged)


def _cells(one: Searched) -> list[str]:
    row = one.row
    published = words_of(one.plan) + marks_of(one) if one.plan else "not planned"
    ours = "; ".join(words_of(plan) for plan in one.layouts[:FIRST])
    ratio = rounded(one.of_first) if one.of_first else "-"
    place = str(one.place) if one.place else "-"
    run = f"{row.model}, {row.devices} {row.hardware}, {row.seq_len} x {row.samples}"
    return [f"[{row.source}]({row.url})", run, published, ours, place, ratio, "yes" if one.is_found else "no"]


def _refusals(judged: Sequence[Searched]) -> Iterator[str]:
    for one in judged:
        if one.refused:
            yield from ["", *wrap(f"{one.row.model} on {one.row.devices} {one.row.hardware}: {one.refused}.", _WIDTH)]


def marks_of(one: Searched) -> str:
    """Return the signs of a published plan that does not fit, or that no engine would start."""
    return "*" * (one.fits == "no") + "†" * bool(one.plan and one.plan.skip)


def words_of(plan: TrainingPlan) -> str:
    """Return how a plan is cut, what it recomputes and partitions, and its micro batch, in few words."""
    dims, parallelism = plan.dims, plan.config.parallelism
    degrees = [f"{name}{size}" for name in ("tp", "pp", "cp", "ep") if (size := getattr(dims, name)) > 1]
    stages = [f"v{parallelism.virtual_stages}"] * (parallelism.virtual_stages > 1)
    degrees += [f"etp{dims.etp}"] * (dims.etp is not None)
    stages += ["+ends"] * (dims.ends_as_layers is not None)
    return " ".join([*degrees, *stages, plan.method, f"m{plan.batch.micro}"])


def per_device(plan: TrainingPlan) -> float:
    """Return the predicted tokens/s of a card."""
    return rate_of(plan) / plan.dims.world_size
