"""Rank 0 of each plan on a pretended GPU: where its tensors are, what lives there, and for what the host waits.

`python -m pretended.worker LIBRARY FOLDER` reads the folder's plans and leaves beside each what was observed, as JSON.
Plans named `measured` are measured as a run would be. Of those named `last` it is the last rank.
Imports take longer than steps, so that they are done once for all engines; plans of one engine and number of ranks then
share a process, as a group of ranks can be joined once.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pretended.library import load

# Moments are there from the second step on.
STEPS = 2


def main(library: str, folder: str) -> int:
    load(Path(library))
    sys.path.insert(0, str(Path(__file__).parent / "packages"))
    from llmexp.training.plan.training_plan import TrainingPlan
    from pretended import answers, tensors

    answers.answer()
    answers.be_alone_in_groups()
    tensors.expect_no_content()
    together: dict[tuple[str, int, int], dict[Path, TrainingPlan]] = defaultdict(dict)
    for path in sorted(Path(folder).glob("*.plan.json")):
        plan = TrainingPlan.read(path)
        rank = plan.processes - 1 if path.name.startswith("last") else 0
        together[plan.command.argv[-2], plan.processes, rank][path] = plan
    launchers = {name: importlib.import_module(name) for name, *_ in together}
    # Looking through what was imported for garbage would take an eighth of a child's time.
    gc.freeze()
    ended = [_in_a_child(launchers[name], (rank, ranks), plans) for (name, ranks, rank), plans in together.items()]
    return max(ended)


def _in_a_child(launcher: Any, ranks: tuple[int, int], plans: Mapping[Path, Any]) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        _observe_all(launcher, *ranks, plans)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _observe_all(launcher: Any, rank: int, ranks: int, plans: Mapping[Path, Any]) -> None:
    from pretended.answers import join
    from pretended.tensors import fake_tensors

    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "none",
        "MASTER_PORT": "1",
    }
    with fake_tensors():
        join(rank, ranks)
        if launcher.__name__.startswith("llmexp.launchers.deepspeed"):
            _join_deepspeed(launcher)
        _balance_experts()
        for path, plan in plans.items():
            found = _measure(plan, launcher, path.parent) if "measured" in path.name else _observe(plan, launcher)
            path.with_suffix(".observed").write_text(json.dumps(found))
            _forget()


def _join_deepspeed(launcher: Any) -> None:
    from deepspeed.runtime.zero import partitioned_param_coordinator as coordinator

    from pretended.answers import DEVICE

    # It compares what ranks have sent, which is nothing.
    coordinator.assert_ints_same_as_other_ranks = lambda *_: None
    launcher.join(DEVICE)


def _balance_experts() -> None:
    """Let as many tokens go to each rank's experts as come from it, which the host waits for once."""
    from pretended.answers import waited

    def read(counts: Any, rows: int) -> list[list[int]]:
        waited()
        ranks = counts.shape[1]
        return [[rows // ranks] * ranks] * 2

    if experts := sys.modules.get("llmexp.launchers.torch_native.shared_experts"):
        vars(experts)["rows_by_rank"] = read


def _observe(plan: Any, launcher: Any) -> dict[str, Any]:
    from living import Living

    from llmexp.measure.loop import train_step
    from pretended.answers import DEVICE, WAITS
    from pretended.tensors import OPERATORS

    with Living("cuda") as living:
        training = launcher.build(plan, DEVICE)
        batches = _batches(plan, training)
        for _ in range(STEPS):
            WAITS.clear()
            OPERATORS.clear()
            peaks: dict[str, int] = {}

            def mark(phase: str, peaks: dict[str, int] = peaks) -> None:
                peaks[phase] = max(peaks.get(phase, 0), living.peak)
                living.peak = living.bytes()

            living.peak = living.bytes()
            losses = train_step(training, next(batches), mark)
        return {
            "loss": str(losses[0].device),
            "places": sorted({parameter.device.type for parameter in training.module.parameters()}),
            "operators": dict(OPERATORS),
            "waits": dict(WAITS),
            "peaks": peaks,
        }


def _measure(plan: Any, launcher: Any, folder: Path) -> dict[str, Any]:
    """Take the samples and make the summary of the rank, except that kernels of a GPU cannot be traced."""
    from torch.profiler import ProfilerActivity

    from llmexp.launchers.rank.frame import Rank, device_of
    from llmexp.launchers.training import measuring
    from llmexp.measure import kernels
    from llmexp.record.samples import StepSample, read_samples
    from pretended.tensors import with_content

    kernels._activities = lambda: [ProfilerActivity.CPU]
    measuring.sequences_of = with_content(measuring.sequences_of)  # type: ignore[assignment]
    device, rank = device_of(plan.config.hardware, 0), Rank(0, 0, plan.processes, folder)
    summary = measuring.measure_training(plan, rank, launcher.build(plan, device), device)
    samples = [sample.model_dump(mode="json") for sample in read_samples(rank.samples_path, StepSample)]
    return summary.model_dump(mode="json") | {"samples": samples}


def _batches(plan: Any, training: Any) -> Iterator[Sequence[Any]]:
    from llmexp.launchers.data import loader
    from pretended.answers import DEVICE
    from pretended.tensors import with_content

    load_sequences = with_content(loader.load)
    sequences = load_sequences(plan.config.data, training.vocab_size, STEPS * plan.batch.global_, plan.config.seed)
    return loader.batches(sequences, 0, plan.dims.dp, plan.batch, DEVICE)


def _forget() -> None:
    if "megatron.core" in sys.modules:
        from megatron.core import parallel_state

        parallel_state.destroy_model_parallel()
    gc.collect()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
