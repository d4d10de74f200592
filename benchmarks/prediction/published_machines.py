"""The machines of published runs: cards that no file describes, nodes, and networks that a source tells."""

from __future__ import annotations

import re

from benchmarks.prediction.published_rows import Row

CARDS_OF_A_NODE = 8
# Cards that differ from those of a file: the H100 with 96 GB of HBM2e and 500 W that torchtitan's pages describe. At
# 350 W an H100 PCIe reaches 0.62 of the products of an SXM5 at 700 W (496 and 795 TFLOP/s, as in the constants), which
# is power to 0.68: 500 W give 0.8 of them.
_CARDS = {
    "h100_96gb": [
        "hardware=h100",
        "hardware.memory_bytes=102005473280",
        "hardware.memory_bandwidth_bytes_per_s=2.4e12",
        "hardware.peak_flops_per_s.bf16=791.5e12",
        "hardware.peak_flops_per_s.fp8=1583e12",
    ]
}
# Where a source has another network than the file of its cards.
_NETWORK = re.compile(r"network of (\d+) Gbit/s a node")


def machine_words(row: Row, assumed: list[str]) -> list[str]:
    """Return the words for a row's cards, nodes and network, and add what they assume."""
    nodes = row.nodes
    if nodes is None:
        nodes = -(-row.devices // CARDS_OF_A_NODE)
        assumed += [f"machines of {CARDS_OF_A_NODE} cards"] * (row.devices > 1)
    card = _CARDS.get(row.hardware, [f"hardware={row.hardware}"])
    devices = row.devices // nodes
    told = _NETWORK.search(row.note)
    network = [f"hardware.network_bandwidth_bytes_per_s={int(told[1]) / 8 / devices}e9"] if told else []
    return [*card, f"hardware.nodes={nodes}", f"hardware.devices_per_node={devices}", *network]
