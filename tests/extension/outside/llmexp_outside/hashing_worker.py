"""What the task's rank does: no torch, and nothing of llmexp's training."""

from __future__ import annotations

import hashlib
import time

import psutil

from llmexp.extend import RankSummary
from llmexp.extend_ranks import Rank, main
from llmexp_outside.hashing import Block, HashPlan


# Called with plan.json and this rank: it writes a sample a line, and returns the summary, rank.<r>.json.
def work(plan: HashPlan, rank: Rank) -> RankSummary:
    digest, data, origin_s, window_s = (
        hashlib.new(plan.config.digest.algorithm),
        bytes(plan.config.digest.block_bytes),
        time.perf_counter(),
        0.0,
    )
    with rank.samples_path.open("w") as file:
        for index in range(plan.samples):
            begin_s = time.perf_counter()
            digest.update(data)
            end_s = time.perf_counter()
            warmup = index < plan.samples - plan.measured_samples
            window_s += 0.0 if warmup else end_s - begin_s
            times = {"t_start_s": begin_s - origin_s, "t_end_s": end_s - origin_s, "at_s": time.time()}
            file.write(Block(index=index, warmup=warmup, digested_bytes=len(data), **times).model_dump_json() + "\n")
    memory_bytes = psutil.Process().memory_info().rss
    return RankSummary(
        rank=rank.index,
        window_wall_s=window_s,
        peak_rss_bytes=memory_bytes,
        what_ran={"digest_bits": 8 * digest.digest_size},
    )


# `main` reads the plan, keeps the output in the log and turns an error into failure.<r>.json.
if __name__ == "__main__":
    main(work, lambda: HashPlan)
