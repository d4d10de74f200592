"""An engine of one's own, for the driver: plain data parallelism, whose gradients its ranks average themselves.

The driver imports this file at every start that asks for the engine, so it imports no torch. conf/engine/averaging.yaml
has its options, averaging_worker.py is what its ranks do.
"""

from __future__ import annotations

from typing import Any

from llmexp.extend import Command, ParallelDims, Techniques, TrainingConfig, TrainingEngine, ranks_of

WORKER = "llmexp_outside.averaging_worker"


class AveragingEngine(TrainingEngine):
    """Replicas whose gradients are averaged by one collective a step."""

    # As in its entry point and its YAML file.
    name = "averaging"
    # Without these modules no rank starts: a run is refused with the line that installs them.
    modules = ("torch", "transformers")
    # Their versions are part of a result's `stack`: with another one the result is stale, and measured again.
    distributions = ("torch", "transformers", "llmexp-outside")
    # The degrees of parallelism that its ranks carry out: runs with others are skipped. This is what an engine that
    # states none has.
    degrees = ("dp",)
    # Values of engine.launcher. `fork` suits workers that may be imported once and forked, on a CPU.
    launchers = ("spawn", "torchrun", "fork")

    # The reason of a skip, with what would work instead; None where the engine can do all that is asked. What is not
    # refused here has to be done by the worker: nothing is left out quietly.
    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Refuse what needs more than whole replicas."""
        if techniques.zero_stage or techniques.offload_optimizer or techniques.quantization:
            return "engine=averaging keeps all training state on every rank: leave Z1 to Z3, O, Q and QL out"
        if techniques.compilation:
            return "engine=averaging compiles nothing: leave C out"
        if config.precision.master != config.precision.parameters:
            return "engine=averaging has no master copy: set precision=fp32 or precision=bf16_pure"
        if config.optimizer.fused_backward:
            return "engine=averaging updates after backward: take an optimizer without fused_backward"
        return None

    # What the ranks get as plan.engine_config, and `llmexp plan --verbose` shows. engine.options are merged over it;
    # an option that has no name here is refused.
    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """Return whether all gradients travel as one tensor."""
        return {"flatten": True}

    # `ranks_of` starts the worker by whichever launcher was chosen, with the environment that ranks need.
    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """Return the command that starts one rank per device."""
        return ranks_of(config, dims.world_size, WORKER)

    # Other hooks, each with a default: `storage` (how state is held, for the plan's memory; ZeRO's way),
    # `needed_modules`, `known_options`, `prepare` (build native code before the ranks start), `advice` (on an error
    # that it knows).


AVERAGING = AveragingEngine()
