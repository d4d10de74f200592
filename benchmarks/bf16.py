"""`python -m benchmarks.bf16` says how much longer matrix products take in bf16 than in fp32 on this processor.

Both run in turn on one thread. With ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 before the command, a processor
with more instructions behaves like those without them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn.functional import linear

from llmexp.machine.bf16 import cpu_lacks

# Tokens, inputs and outputs of a layer.
SHAPES = ((256, 256, 256), (256, 1024, 1024), (1024, 1024, 1024))
CALLS, ROUNDS = 5, 9


def products(tokens: int, inputs: int, outputs: int, dtype: torch.dtype) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the three products of a linear layer's training step."""
    x, weight, gradient = (
        torch.randn(tokens, inputs).to(dtype),
        torch.randn(outputs, inputs).to(dtype),
        torch.randn(tokens, outputs).to(dtype),
    )
    return {
        "forward": lambda: linear(x, weight),
        "of weights": lambda: gradient.t() @ x,
        "of inputs": lambda: gradient @ weight,
    }


def seconds(product: Callable[[], torch.Tensor]) -> float:
    """Measure the wall time of CALLS calls."""
    start_s = time.perf_counter()
    for _ in range(CALLS):
        product()
    return time.perf_counter() - start_s


def main() -> None:
    """Print a line for each product with the median of the rounds' ratios."""
    torch.set_num_threads(1)
    print(cpu_lacks() or "this processor has bf16 instructions")
    for shape in SHAPES:
        fp32, bf16 = products(*shape, torch.float32), products(*shape, torch.bfloat16)
        for name in fp32:
            ratios = [seconds(bf16[name]) / seconds(fp32[name]) for _ in range(ROUNDS)]
            print(f"{' x '.join(map(str, shape)):<20} {name:<11} bf16 over fp32: {median(ratios):6.2f}")


if __name__ == "__main__":
    main()
