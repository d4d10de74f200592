"""`python -m benchmarks.prediction` fits the constants anew and writes them, the page's table and its picture."""

from __future__ import annotations

from pathlib import Path

import yaml

from benchmarks.prediction.judge import Judge
from benchmarks.prediction.page import picture, tables
from benchmarks.prediction.suite import intervals
from llmexp.training.predict import rates

CONSTANTS = Path(rates.__file__).with_name("constants.yaml")
TABLES, PICTURE = Path("docs/results/prediction.md"), Path("docs/pictures/prediction.png")
_HEAD = """\
# Written by `python -m benchmarks.prediction`; llmexp/training/predict/rates.py says what each number is.
# hardware, shared: fitted to the tokens/s of arXiv 2311.03687v2, tables III, IV and IX, and docs/results/h200.
# carried: shares of the data sheets' peaks and half lengths, from the median latencies of products (m of 1 to 8192,
#   n and k from 4096) and of causal attention (256 to 16384 positions) that NVIDIA's aiconfigurator has (Apache-2.0,
#   Copyright NVIDIA CORPORATION & AFFILIATES, commit 095f58a51, systems/data). fa2_attention_share: FlashAttention-2 on
#   an H100, from the abstract of arXiv 2407.08608. products_share of a card by its name: the median of what people
#   measured in torch (github.com/zzc0721/torch-performance-test-data, database.md, commit 9d8282763), of A100 PCIe and
#   AMD's cards with github.com/stas00/ml-engineering (compute/accelerator, commit 744d01e18), times 0.94: these two say
#   the best of several shapes, and the tables above have 0.83 to 1.00 of it, 0.94 in the mean, on A100, H100, B200 and
#   L40S.
# sustained_share: what products reach of these shares in a training step, where power limits the clock. Those of a step
#   that was traced took 720 ms where the shares say 642 (docs/results/h200/pretrain_7b.md, F+C). Alone they reach 0.86
#   to 0.91 of them there (limits.md).
#   bandwidth_share: what MI300X reaches of its memory's peak, 81 %, over the 90 % of NVIDIA's cards (AMD MI300X GPU
#   Performance Analysis, arXiv, October 2025).
#   fp8_share: the median of fp8 products with 1024 rows or more and 16384 columns, whose kernels cast their inputs too,
#   times what half_rows takes; on H100 and H200, B200 and GB200, L40S. Its typical value is the mean, rounded.
# links: switched_share (the mean of A100, H100 and B200, of all-gather and reduce-scatter of 512 MB), through_host and
#   collective_s (what eight ranks take longer than at the bandwidth of large messages, of 8 MB) from its collectives.
#   network_share, host_link_share and node_s are round figures.
#   peer_share: the median of six all-reduces of seven and eight RTX PRO 6000, 22.2 to 41.7 of 63 GB/s
#   (github.com/voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md, commit 070506ff9).
# typical: the geometric mean of the fitted machines, products_share, half_rows and attention apart; of hosts that of
#   cards on PCIe. switched: the same of cards that a switch links, whose hosts are those of data centers.
# intervals: the ends of 90 % intervals of tokens/s as shares of the prediction, and the runs that they come from, or
#   the sources where the intervals of others hold too few of a source.
"""


def main() -> None:
    """Fit, judge and write."""
    judge = Judge()
    known = judge.known
    known["intervals"] = intervals(judge)
    CONSTANTS.write_text(_HEAD + yaml.safe_dump(known, sort_keys=False, width=1000), encoding="utf-8")
    judged = list(judge.all_runs())
    TABLES.write_text(tables(judge, judged, known["intervals"]), encoding="utf-8")
    picture(judged, PICTURE)
    print(f"written: {CONSTANTS.name}, {TABLES}, {PICTURE}")


if __name__ == "__main__":
    main()
