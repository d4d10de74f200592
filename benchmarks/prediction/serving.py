"""The errors of predicted servers as figures, the intervals that follow from them, and the page that shows both.

`python -m benchmarks.prediction.serving` fits the constants anew and writes them and the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import yaml

from benchmarks.figure import Figure
from benchmarks.interval import Interval
from benchmarks.prediction.errors import of_errors
from benchmarks.prediction.fit import Vector
from benchmarks.prediction.published import COMMON
from benchmarks.prediction.served import PUBLISHED, Measured
from benchmarks.prediction.served_fit import Left, ServedJudge, constants_of, weights
from benchmarks.prediction.served_step import table
from benchmarks.rates import held_rate
from llmexp.record.digits import rounded
from llmexp.serving.predict import rates
from llmexp.serving.predict.interval import PredictedKind

CONSTANTS, PAGE = Path(rates.__file__).with_name("constants.yaml"), Path("docs/results/served.md")
KINDS: tuple[PredictedKind, ...] = get_args(PredictedKind)
NAMES = {"throughput": "throughput", "tpot": "TPOT", "ttft": "TTFT"}
# Medians over sources of their median errors, in percent.
_LIMITS = {"throughput": 15.0, "tpot": 17.0, "ttft": None}
_LIMITS_OF_COMMON = {"throughput": 10.0, "tpot": None, "ttft": None}
# A source counts in an interval as much as one with so many rows: errors of one are alike, and the next is another.
_ROWS_OF_ENDS = 5
_WORST = 12
# Of its predicted saturation, from which a load's errors are told apart.
_NEAR = 0.5
# Sources whose rows came after a fit to all others: what others had erred when left out, what that fit erred on these,
# and how many of their numbers lay in the 90 % intervals.
_FIRST = {
    *("accelmark", "cloudrift", "cognitivecomputations", "continuum", "databasemart", "dsmike", "dstack"),
    *("ilyasmoutawwakil", "iog", "kvcached", "ld-singh", "llama.cpp-threads", "oracle", "sgl-cookbook"),
    *("vllm-nightly", "vllm-threads", "zkf331"),
}
_SECOND = {
    *("anyscale", "argonne", "augmxnt", "cmontemuino", "evalscope", "gpu-recipes", "kagaho", "livinfly"),
    *("llmservingsim", "manojarulmurugan", "ninehills", "pegainfer", "progmastermind", "rocm-blog", "skymizer"),
    *("tenstorrent", "vllm-blog", "zhjunqin"),
}
_BLIND = {
    "first": (
        _FIRST,
        {
            "throughput": "10.6 % | 24.1 % | 57 % of 127",
            "tpot": "11.2 % | 27.8 % | 63 % of 136",
            "ttft": "23.5 % | 67.2 % | 63 % of 65",
        },
    ),
    "second": (
        _SECOND,
        {
            "throughput": "16.0 % | 12.6 % | 83 % of 211",
            "tpot": "16.2 % | 18.6 % | 81 % of 68",
            "ttft": "36.9 % | 38.4 % | 84 % of 49",
        },
    ),
}
_HEAD = """\
# Written by `python -m benchmarks.prediction.serving`; llmexp/serving/predict/rates.py says what each number is.
# fitted: to benchmarks/published_serving.csv, which names every source.
# carried, typical: shares of the data sheets' peaks, and the share of bandwidth that few rows of quantized weights get
#   beside those of bf16, from the median latencies of products (m of 1 to 8192, n and k from 4096) and of causal
#   attention that NVIDIA's aiconfigurator has (Apache-2.0, Copyright NVIDIA CORPORATION & AFFILIATES, commit 095f58a51,
#   systems/data); products_share of a card by its name and bandwidth_share as in those of trainings. links: from its
#   collectives by NCCL, but for its 1.4 GB/s through the host of eight cards: servers had at least 4.6 (accelmark, 70B
#   on eight RTX 4090); peer_share as in the constants of trainings.
# intervals: the ends of 90 % intervals as shares of the prediction, and the rows and the sources that they come from.
"""
_PAGE_HEAD = """\
# Predictions of servers: the evidence

[Serving](../serving.md#how-fast-would-it-be) shows a prediction. This page says how it is made, and how far off it was
of published measurements whose source took no part in the fit. One command fits the constants anew, and writes them and
this page:

    python -m benchmarks.prediction.serving

`benchmarks/published_serving.csv` has every printed number with its place.

## What is predicted, and how

Predicted are vLLM, SGLang, LightLLM and TGI with tensor parallelism and copies. Weights are bf16, fp8, or 4-bit by GPTQ
or AWQ. Layers may have grouped heads, latents, windows, states or experts. Not predicted are the other engines,
pipeline parallelism, adapters, shared prefixes, conversations, texts, traces and ramps.

1. **An iteration** reads all weights, the experts that its tokens are sent to, and the cache. It computes products and
   the attention of prompts, and reduces over cards. The host schedules, samples and sends. No graph has the many
   lengths of prompts, so that the host starts each kernel of an iteration that reads some, and nothing fuses these.
2. **A load** keeps a batch in flight: by Little's law for a rate, else as many as are sent. Room in the cache and the
   engine's limit cap it. Prompts are read beside decoding. Loads have a beginning and an end, with fewer in flight.
3. **23 constants** are fitted, such as the share of a memory's bandwidth that weights get. Shares of peaks come from
   [measured kernels](../prediction.md#sources).

## Two blind tests

Twice numbers were collected after the constants had been fitted to all others, and predicted as they came: 328 of 17
sources, and later 329 of 18. Medians over sources, and how many numbers the 90 % intervals held:
"""
_MENDED = """\

By the first the formulas were mended: prompts without graphs, loads with ends, all-reduces over PCIe, eight cards
without peer access, and less memory besides weights on small cards. By the second: vLLM from 0.14 and SGLang from 0.4
schedule beside the device, the first requests of a closed load wait for each other, and MI300X reaches less of its
memory's bandwidth. vLLM 0.6.1 on AMD, which had no attention of its own there, counts as an old server since.

Tried and dropped, as sources left out erred no less: more time for layers with experts or latents while decoding, and
room for half of an output. Equal prompts of a closed load, read in waves, came nearer to some numbers and missed more.

## How far off

- **The formulas were made with these numbers in view,** and six settings were chosen by them: memory besides weights
  and cache, the longest of varying outputs, how they vary in closed loads, room for growing requests, the links of
  eight cards without peer access, and how narrowly elementwise operations are held to their count. The last was chosen
  by the paper's step below, too. The second blind test says what to expect of a server that nobody has seen.
- **Sources print means or medians,** as sgl-cookbook and cloudrift the one and AccelMark the other, or IOG's TPOT and
  TTFT. All count as means.
- **TTFT errs most.** Engines differ there by more than a factor of two.
- **Full caches err.** Where weights leave little room, a GiB more or less decides how many requests run.
- **Lengths that vary** are taken to be exponential in bursts, uniform up to twice their mean in closed loads. The last,
  long requests of a burst decide its throughput.
- **DeepSeek R1 on MI300X, or with AWQ,** was measured two to three times slower than predicted, and gpt-oss on MI300X.
- **LightLLM and TGI** have the constants of older schedulers, as few of their numbers are printed.
- **`transformers` is not predicted.** On this project's [H100](h100/serve_1b.md) an iteration of a 1B model took its
  server 119 ms.
"""


def predict_serving(folder: Path) -> Iterator[Figure]:
    """Yield the errors of throughput, TPOT and TTFT by source, and how often the intervals hold."""
    yield from figures(ServedJudge().left)


def figures(left: Left) -> Iterator[Figure]:
    """Yield the same of rows that took no part in the fit that predicts them."""
    for kind in KINDS:
        part = left.part(kind)
        words = f"median error of {NAMES[kind]}"
        yield _over_sources(f"{words}, a source left out", part, _LIMITS[kind])
        common = part.by_predicted_engines(COMMON)
        yield _over_sources(f"{words}, predicted engines on common cards", common, _LIMITS_OF_COMMON[kind])
        for source, error in part.of_sources():
            mine = part.part(kind, source)
            percent = 100 * error
            yield Figure(
                f"median error of {NAMES[kind]}, {source} left out",
                "%",
                Interval(percent, percent, percent),
                len(mine.rows),
            )
        held, tried = holding(left, kind)
        yield held_rate(f"{NAMES[kind]}: 90 % intervals that hold", held, tried)


def intervals(left: Left) -> dict[str, list[float]]:
    """Return the ends of 90 % intervals as shares of a prediction, and the rows and sources behind, by kind."""
    found = {kind: left.part(kind) for kind in KINDS}
    return {kind: [*_ends(part.rows, part.errors), len(part.rows), len(part.sources)] for kind, part in found.items()}


def holding(left: Left, kind: PredictedKind) -> tuple[int, int]:
    """Return how many numbers lay in the interval that the errors of the other sources give, and of how many."""
    part, held = left.part(kind), 0
    for source in part.sources:
        others = np.array([row.source != source for row in part.rows])
        low, high = _ends([row for row in part.rows if row.source != source], part.errors[others])
        shares = np.exp(-part.part(kind, source).errors)
        held += int(((shares >= low) & (shares <= high)).sum())
    return held, len(part.rows)


def page(judge: ServedJudge) -> str:
    """Return the page of evidence in Markdown."""
    beyond, old = len(judge.impossible), len(judge.old)
    counts = (
        f"The file has {len(judge.rows) + old + beyond} numbers. Two kinds take no part in a fit: {beyond} that exceed "
        f"the device's data sheet,\nand {old} of vLLM before 0.6 (0.6.2 on AMD), and servers of 2023."
    )
    told = [_PAGE_HEAD, *_blind(judge.left), _MENDED, counts, "", *_by_kind(judge.left), ""]
    told += [_near_saturation(judge), "", *_by_source(judge), ""]
    told += [*table(constants_of(judge.logs)), "", *_worst(judge.left)]
    return "\n".join(told) + "\n"


def _ends(rows: Sequence[Measured], errors: Vector) -> list[float]:
    """Return the conformal ends: quantiles of shares, in which a large source counts as a small one."""
    order = np.argsort(-errors)
    shares, counts = np.exp(-errors[order]), weights(rows, _ROWS_OF_ENDS)[order]
    # The next row counts as one more, beyond either end.
    reached = np.cumsum(counts) / (counts.sum() + 1)
    places = (min(int(np.searchsorted(reached, share)), len(shares) - 1) for share in (0.05, 0.95))
    return [round(float(shares[place]), 3) for place in places]


def _over_sources(name: str, part: Left, limit: float | None) -> Figure:
    """Return the median over sources of their median errors, with its interval over resampled sources."""
    off = np.array([error for _, error in part.of_sources()])
    return of_errors(name, off, np.median, limit)


def _by_kind(left: Left) -> Iterator[str]:
    yield "| of sources left out | numbers | sources | median over sources | median | 90 % are below | intervals hold |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for kind in KINDS:
        held, tried = holding(left, kind)
        yield _line_of(NAMES[kind], left.part(kind), f"{100 * held / tried:.1f} %")
    common = left.by_predicted_engines(COMMON)
    for kind in KINDS:
        yield _line_of(f"{NAMES[kind]}, predicted engines on common cards", common.part(kind), "-")
    yield ""
    yield "Common cards are A100, H100, H200, B200, L40S and RTX 4090. Engines that `llmexp` does not predict, such as"
    yield "TensorRT-LLM and ExLlama, stay in the fits: they tell rates of the same cards."


def _line_of(name: str, part: Left, holds: str) -> str:
    cells = (part.median, np.median(part.off), np.quantile(part.off, 0.9))
    said = " | ".join(f"{100 * cell:.1f} %" for cell in cells)
    return f"| {name} | {len(part.rows)} | {len(part.sources)} | {said} | {holds} |"


def _blind(left: Left) -> Iterator[str]:
    """Yield the errors of fits to the other sources, and those that today's fits have of the same when left out."""
    yield "| blind test | | others left out, before | blind | intervals held | these left out, now |"
    yield "|---|---|---:|---:|---:|---:|"
    for test, (sources, found) in _BLIND.items():
        for kind in KINDS:
            now = [error for source, error in left.part(kind).of_sources() if source in sources]
            yield f"| {test} | {NAMES[kind]} | {found[kind]} | {100 * np.median(now):.1f} % |"


def _near_saturation(judge: ServedJudge) -> str:
    """Say how TPOT errs under open loads: near saturation, requests in flight multiply an iteration's error."""
    part, known = judge.left.part("tpot"), constants_of(judge.logs)
    used = np.array([_used(row, known) for row in part.rows])
    far, near = part.off[used < _NEAR], part.off[used >= _NEAR]
    return (
        f"Under open loads TPOT is off by {100 * np.median(far):.0f} % in the median of {len(far)} below half of the "
        f"predicted saturation,\nand by {100 * np.median(near):.0f} % of {len(near)} above it, where requests in "
        f"flight multiply an iteration's error. Both have the same interval."
    )


def _used(row: Measured, fitted: Mapping[str, float]) -> float:
    """Return the rate of an open load as a share of the predicted saturation; not a number for others."""
    rate_per_s = row.load.rate_per_s
    return rate_per_s / row.server(fitted).saturation_per_s(row.load) if rate_per_s else float("nan")


def _by_source(judge: ServedJudge) -> Iterator[str]:
    yield "By source, with the median of predicted over measured:"
    yield ""
    yield "| source | what | numbers | median error | predicted over measured |"
    yield "|---|---|---:|---:|---:|"
    for kind in KINDS:
        part = judge.left.part(kind)
        for source, error in sorted(part.of_sources(), key=lambda found: found[1]):
            yield _source_line(source, NAMES[kind], part.part(kind, source), error)
    for source, error in judge.of_old.of_sources():
        yield _source_line(f"{source}, old server", "throughput", judge.of_old.part("throughput", source), error)


def _source_line(source: str, name: str, mine: Left, error: float) -> str:
    over = float(np.exp(np.median(mine.errors)))
    return f"| {source} | {name} | {len(mine.rows)} | {100 * error:.1f} % | {over:.2f} |"


def _worst(left: Left) -> Iterator[str]:
    yield f"The {_WORST} worst:"
    yield ""
    yield "| number | printed | predicted |"
    yield "|---|---:|---:|"
    for place in np.argsort(-np.abs(left.errors))[:_WORST]:
        row = left.rows[place]
        yield f"| {row} | {rounded(row.value)} | {rounded(row.value * float(np.exp(left.errors[place])))} |"


def main() -> None:
    """Fit, judge and write."""
    judge = ServedJudge()
    known: dict[str, Any] = dict(rates.constants())
    known["fitted"] = {name: float(f"{value:.4g}") for name, value in constants_of(judge.logs).items()}
    known["intervals"] = intervals(judge.left)
    CONSTANTS.write_text(_HEAD + yaml.safe_dump(known, sort_keys=False, width=1000), encoding="utf-8")
    PAGE.write_text(page(judge), encoding="utf-8")
    print(f"written: {CONSTANTS.name}, {PAGE}, by {PUBLISHED}")


if __name__ == "__main__":
    main()
