"""The program of one rank of the megatron-core loop: it builds what plan.json says and runs it.

The package has no training script, so this file is the project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

if __name__ == "__main__":
    from llmexp.launchers.rank.starting import begin_imports, end_imports

    begin_imports()

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from torch import distributed, nn

from llmexp.launchers.megatron.adamw import build_optimizer
from llmexp.launchers.megatron.chunked_loss import chunks_that_ran
from llmexp.launchers.megatron.cpu import let_megatron_run_on
from llmexp.launchers.megatron.model import form_groups, stages, transformer_config
from llmexp.launchers.megatron.passes import PassShare
from llmexp.launchers.megatron.state import parts, state_tensors, torch_optimizers
from llmexp.launchers.rank.frame import join_group
from llmexp.launchers.training.measuring import run_rank
from llmexp.measure.batch import MicroBatch
from llmexp.record.what_ran import WhatRan
from llmexp.schema import SizedModel
from llmexp.training.plan.training_plan import TrainingPlan

Losses = list[torch.Tensor]


class MegatronTraining:
    """megatron-core's model, data parallelism, schedule and optimizer with the measured loop's one call.

    It also gives access to the state they hold.
    """

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        self._plan, self._device = plan, device
        config = transformer_config(plan)
        self.stages = stages(plan, config)
        self.module: nn.Module = nn.ModuleList(self.stages)
        self.optimizer = build_optimizer(plan.engine_config["optimizer"], self.stages)
        self._scales_loss = plan.config.precision.scales_loss
        self._scaled_step: tuple[float, bool] | None = None
        if self._scales_loss:
            config.grad_scale_func = self.optimizer.scale_loss
        assert isinstance(plan.config.model, SizedModel)
        self.vocab_size = plan.config.model.vocab_size
        self.parameters = self.trainable_parameters = plan.parameters or 0

    def train(self, passes: Sequence[MicroBatch], mark: Callable[[str], None]) -> Losses:
        """Run one step: Megatron's pipeline schedule where there are several stages, else pass by pass; then update."""
        if self._plan.dims.pp > 1:
            losses = self._scheduled(passes)
            mark("forward_backward")
        else:
            losses = self._in_turn(passes, mark)
            mark("backward")
        self._update()
        for stage in self.stages:
            stage.zero_grad_buffer()
        self.optimizer.zero_grad()
        reported = self._of_whole_replica(losses, len(passes))
        mark("optimizer")
        return reported

    def _update(self) -> None:
        """Update the parameters; Megatron tells no norm of gradients that overflow, and updates nothing."""
        scale = float(self.optimizer.get_loss_scale()) if self._scales_loss else None
        updated, self._gradient_norm, _ = self.optimizer.step()
        if scale is not None:
            self._scaled_step = scale, not updated

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        """Return, by kind, the tensors that hold training state now."""
        return state_tensors(self.module, self.optimizer)

    def gradient_norm(self) -> float | None:
        """Return the norm of the last step's gradient."""
        return self.norm_of_step()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the groups of the optimizers inside Megatron's."""
        return [group for inner in torch_optimizers(self.optimizer) for group in inner.param_groups]

    def norm_of_step(self) -> float | None:
        """Return the norm, which Megatron computes in every step whose gradients do not overflow."""
        return None if self._gradient_norm is None else float(self._gradient_norm)

    def scaled_step(self) -> tuple[float, bool] | None:
        """Return the factor of the last step's losses, and whether its update was skipped; None without a factor."""
        return self._scaled_step

    def offloaded(self) -> frozenset[str]:
        """Return no kinds: Megatron's own offload is not used."""
        return frozenset()

    def what_ran(self) -> WhatRan:
        """Return the classes that Megatron trains with, and what it was built to do."""
        layer = next(module for module in self.module.modules() if hasattr(module, "core_attention"))
        # With its end as a layer, a stage may have no other.
        decoder_layer = next(layer for stage in self.stages for layer in stage.module.decoder.layers)
        ran: WhatRan = {
            "loop": "megatron-core loop",
            "attention_implementation": _class_name(layer.core_attention),
            "norm_implementation": _class_name(decoder_layer.input_layernorm),
            "model_class": _class_name(self.stages[0].module),
            "optimizer_class": _class_names(torch_optimizers(self.optimizer)),
            "engine_optimizer_class": _class_names(parts(self.optimizer)),
            "schedule": get_forward_backward_func().__name__,
            "backend": distributed.get_backend(),
            "reduced_in": str(self.stages[0].buffers[0].grad_dtype),
            "fusions": _fusions_that_ran(self._plan, self.stages[0].module.config),
        }
        return ran | _experts_that_ran(decoder_layer.mlp) | self._chunks_that_ran()

    def _chunks_that_ran(self) -> WhatRan:
        """Return the chunks of the last stage's loss on every rank."""
        if not self._plan.config.kernels.chunked_loss:
            return {}
        chunks = torch.tensor(chunks_that_ran(self.stages).get("loss_chunks", 0), device=self._device)
        distributed.all_reduce(chunks, op=distributed.ReduceOp.MAX)
        return {"loss_chunks": int(chunks)}

    def _in_turn(self, passes: Sequence[MicroBatch], mark: Callable[[str], None]) -> Losses:
        (stage,) = self.stages
        losses = []
        for number, batch in enumerate(passes, start=1):
            share = PassShare.of(batch)
            loss = share.loss(share.through(stage))
            losses.append(loss.detach())
            mark("forward")
            # Gradients are summed over the passes and reduced over the replicas in the last one, as in Megatron.
            with nullcontext() if number == len(passes) else stage.no_sync():
                loss = loss * (self._plan.dims.cp / len(passes))
                (self.optimizer.scale_loss(loss) if self._scales_loss else loss).backward()
            if number < len(passes):
                mark("backward")
        finalize_model_grads(self.stages)
        return losses

    def _scheduled(self, passes: Sequence[MicroBatch]) -> Losses:
        reported = get_forward_backward_func()(
            forward_step_func=_step,
            data_iterator=[iter(passes) for _ in self.stages],
            model=self.stages,
            num_microbatches=len(passes),
            seq_length=self._plan.config.data.seq_len,
            micro_batch_size=self._plan.batch.micro,
        )
        return [each["loss"] for each in reported]

    def _of_whole_replica(self, losses: Losses, passes: int) -> Losses:
        """Return the replica's loss on every rank.

        Only the last stage knows it, and each context-parallel rank has a part of it.
        """
        dims = self._plan.dims
        known = torch.stack(losses) if losses else torch.empty(passes, device=self._device)
        if dims.cp > 1:
            distributed.all_reduce(known, group=parallel_state.get_context_parallel_group())
        if dims.pp > 1:
            distributed.broadcast(
                known,
                parallel_state.get_pipeline_model_parallel_last_rank(),
                parallel_state.get_pipeline_model_parallel_group(),
            )
        return list(known)


def _step(
    batches: Iterator[MicroBatch], stage: DistributedDataParallel
) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    share = PassShare.of(next(batches))

    def loss(losses: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        own = share.loss(losses)
        # The schedule multiplies the first value by cp and divides it by the passes, in place.
        return own, {"loss": own.detach().clone()}

    return share.through(stage), loss


def _experts_that_ran(mlp: nn.Module) -> WhatRan:
    ran = WhatRan()
    if (experts := getattr(mlp, "experts", None)) is not None:
        ran["experts_implementation"] = _class_name(experts)
    if (dispatcher := getattr(mlp, "token_dispatcher", None)) is not None:
        ran["token_dispatcher"] = _class_name(dispatcher)
    return ran


def _fusions_that_ran(plan: TrainingPlan, config: TransformerConfig) -> str:
    named = (name for name in plan.engine_config["transformer"] if name.endswith("_fusion"))
    return ", ".join(name for name in named if getattr(config, name)) or "none"


def _class_name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__name__}"


def _class_names(things: Iterable[object]) -> str:
    """Name the classes of Megatron's optimizers that differ; one of several is for experts."""
    return ", ".join(dict.fromkeys(_class_name(each) for each in things))


def join(device: torch.device) -> None:
    """Meet the other ranks; call this before anything of Megatron is built."""
    let_megatron_run_on(device)
    join_group(device)


def build(plan: TrainingPlan, device: torch.device) -> MegatronTraining:
    """Build the training step, ready to run; call `join` first."""
    form_groups(plan)
    return MegatronTraining(plan, device)


if __name__ == "__main__":
    end_imports()
    run_rank(join, build)
