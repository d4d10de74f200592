"""Simulated splits against FlexGen's published figures: `python -m benchmarks.prediction.offload` prints both."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from llmexp.inputs.architecture.mixers import Attention
from llmexp.inputs.architecture.model import Architecture, Layer
from llmexp.inputs.architecture.parts import Mlp
from llmexp.record.digits import rounded
from llmexp.serving.advice.offload.machine import OffloadedModel, OffloadMachine, offloaded_model
from llmexp.serving.advice.offload.placement import OfflineRequests, OffloadPlacement, TierShares, block_time
from llmexp.serving.advice.offload.search import SimulatedSplit, best_split
from llmexp.serving.predict.held import held

# FlexGen's machine: one T4, 208 GB of memory and 1.5 TB of four striped disks on Google's cloud. The rates of products,
# of the link and of the host's attention are its authors' own fit (experimental/cost_model.py of
# github.com/FMInference/FlexLLMGen, commit 004ffef); the memory's is the data sheet's 320 GB/s times the share that
# servers get. The disks' is the one value that was chosen here, by the run of OPT-175B with prompts of 256 tokens.
T4 = OffloadMachine(
    device_bytes=0.9 * 16.1e9,
    host_bytes=0.9 * 208e9,
    disk_bytes=0.9 * 1.5e12,
    memory_per_s=0.82 * 320e9,
    flops_per_s=21.24e12,
    link_per_s=12.89 * 2**30,
    read_per_s=2.6e9,
    write_per_s=1.3e9,
    host_attention_per_s=12.3e9,
)
# Layers, hidden size and heads of OPT (arXiv 2205.01068, table 1).
_OPT = {"6.7B": (32, 4096, 32), "30B": (48, 7168, 56), "175B": (96, 12288, 96)}
_VOCAB, _OUTPUT = 50272, 32
CHOSEN_BY = ("175B", 256)


@dataclass(frozen=True)
class PublishedSplit:
    """A run of FlexGen in 16 bits: its placement and generated tokens/s."""

    model: str
    prompt: int
    weights: tuple[float, float]
    cache: tuple[float, float]
    block: tuple[int, int]
    tokens_per_s: float

    @property
    def placement(self) -> OffloadPlacement:
        """The placement that it was started with."""
        return OffloadPlacement(TierShares(*self.weights), TierShares(*self.cache), *self.block)

    @property
    def asked(self) -> OfflineRequests:
        """Its prompts and outputs."""
        return OfflineRequests(self.prompt, _OUTPUT)

    @property
    def simulated(self) -> float:
        """The tokens/s of that placement as simulated."""
        return block_time(T4, opt(self.model), self.asked, self.placement).tokens_per_s

    @property
    def best(self) -> SimulatedSplit:
        """The fastest split of the search, of no more requests than three times as many."""
        found = best_split(T4, opt(self.model), self.asked, 3 * self.placement.requests)
        assert found
        return found


# benchmark/flexllmgen/bench_suite.py of that commit, with the figures beside the commands, and those of 512 tokens in
# benchmark/batch_size_table.md.
PUBLISHED_SPLITS = (
    PublishedSplit("6.7B", 256, (1.0, 0.0), (1.0, 0.0), (4, 1), 53.29),
    PublishedSplit("6.7B", 512, (1.0, 0.0), (1.0, 0.0), (2, 1), 25.26),
    PublishedSplit("30B", 256, (0.1, 0.9), (0.0, 1.0), (160, 2), 16.01),
    PublishedSplit("30B", 512, (0.2, 0.8), (0.0, 1.0), (48, 3), 7.32),
    PublishedSplit("175B", 256, (0.0, 0.5), (0.0, 0.0), (64, 8), 1.36),
    PublishedSplit("175B", 512, (0.0, 0.5), (0.0, 0.0), (32, 8), 0.69),
)


def opt(name: str) -> OffloadedModel:
    """Return an OPT model in 16 bits."""
    layers, hidden, heads = _OPT[name]
    mixer = Attention(hidden, heads, heads, hidden // heads, qkv_bias=True, output_bias=True)
    layer = Layer(mixer, Mlp(hidden, 4 * hidden, gated=False, bias=True), 4 * hidden)
    return offloaded_model(held(Architecture("opt", _VOCAB, hidden, True, ((layers, layer),))), 1)


def errors() -> list[float]:
    """Return simulated over published, minus 1, of the runs that chose nothing."""
    rows = [row for row in PUBLISHED_SPLITS if (row.model, row.prompt) != CHOSEN_BY]
    return [row.simulated / row.tokens_per_s - 1 for row in rows]


def main() -> None:
    """Print a row for each published run, and how far off the simulated ones are."""
    print("| model | prompt | published, tokens/s | the same split, simulated | best split | its tokens/s |")
    print("|---|---:|---:|---:|---|---:|")
    for row in PUBLISHED_SPLITS:
        best = row.best
        where = f"weights {best.placement.weights}, cache {best.placement.cache}"
        block = f"{best.placement.batch} x {best.placement.batches}"
        print(
            f"| OPT-{row.model} | {row.prompt} | {row.tokens_per_s:g} | {rounded(row.simulated)} | "
            f"{where}, {block} | {rounded(best.time.tokens_per_s)} |"
        )
    off = [abs(error) for error in errors()]
    print(f"\nWithout the run that chose the disks' rate: median error {median(off):.1%}, largest {max(off):.1%}.")


if __name__ == "__main__":
    main()
