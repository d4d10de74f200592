"""The program of one rank of DeepSpeed: it builds what plan.json says and runs it."""

from __future__ import annotations

if __name__ == "__main__":
    from llmexp.launchers.rank.starting import begin_imports, end_imports

    begin_imports()

from typing import Any

import deepspeed
import torch
from accelerate import init_empty_weights
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from deepspeed.runtime.utils import clip_grad_norm_
from deepspeed.utils import set_z3_leaf_modules
from torch import nn
from transformers import PreTrainedModel
from transformers.initialization import no_init_weights as unfilled

from llmexp.launchers.deepspeed.ops import use_built_ops, use_fp16
from llmexp.launchers.deepspeed.sequence import CutSequences, WholeSequences
from llmexp.launchers.deepspeed.state import offloaded_kinds, state_tensors, swap_buffers
from llmexp.launchers.deepspeed.swap_files import SwapFiles
from llmexp.launchers.models import assembly, building
from llmexp.launchers.models.chunked_loss import chunks_that_ran
from llmexp.launchers.models.compiled import decoder_layers
from llmexp.launchers.models.fused_projections import products_that_ran
from llmexp.launchers.models.keeping import results_that_were_kept
from llmexp.launchers.models.quantize import quantization_scales
from llmexp.launchers.models.weights import weights_of
from llmexp.launchers.rank.frame import PEERS_TIMEOUT
from llmexp.launchers.training.activations import around_forward, moved
from llmexp.launchers.training.measuring import run_rank
from llmexp.launchers.training.optimizer_state import first_gradient_norm
from llmexp.measure.batch import MicroBatch
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.training_plan import TrainingPlan


class DeepSpeedTraining:
    """A DeepSpeed engine with the measured loop's three calls, and with access to the state it holds."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        self._plan, self._device = plan, device
        if plan.config.precision.scales_loss:
            use_fp16()
        self._method = assembly.method_of(plan)
        self._techniques = self._method.techniques
        self._sequences = CutSequences(plan) if plan.dims.cp > 1 else WholeSequences()
        self._files = SwapFiles(plan)
        self.module = self._model()
        buffers = building.ExactBuffers(self.module)
        self.vocab_size = int(self.module.config.vocab_size)
        self.engine, *_ = deepspeed.initialize(
            model=self.module,
            config=self._files.in_config(plan.engine_config),
            optimizer=self._optimizer(),
            model_parameters=assembly.trained(self.module),
            mpu=self._sequences.groups,
        )
        if plan.dims.world_size == 1 and self._techniques.zero_stage == 0:
            # A single rank has nobody to average with, yet every gradient would be copied into buckets and back.
            self.engine.enable_backward_allreduce = False
        self._clipped_norm: torch.Tensor | float | None = None
        self._scaled_step: tuple[float, bool] | None = None
        self.engine.clip_fp32_gradients = self._clip
        buffers.restore(device)
        if isinstance(self.engine.optimizer, FP16_UnfusedOptimizer):
            undo_first_step(self.engine.optimizer)
        self._around_forward = around_forward(plan, self.module, device)
        sizes = [(getattr(p, "ds_numel", p.numel()), p.requires_grad) for p in self.module.parameters()]
        self.trainable_parameters = sum(size for size, trained in sizes if trained)
        self.parameters = plan.parameters or sum(size for size, _ in sizes)

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """Return the next-token loss of one pass."""
        with self._around_forward:
            return self._sequences.loss_of_replica(self.engine(**self._sequences.inputs(batch)).loss)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients of one pass, and reduce them over the ranks as the ZeRO stage requires."""
        self.engine.backward(loss)

    def step(self) -> None:
        """Update the parameters where the accumulation is complete."""
        skipped = self.engine.skipped_steps
        scale = float(self.engine.optimizer.loss_scale) if self._plan.config.precision.scales_loss else None
        self.engine.step()
        if scale is not None:
            self._scaled_step = scale, self.engine.skipped_steps > skipped
        self._files.end_step()

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        """Return, by kind, the tensors that hold training state now."""
        return state_tensors(self.engine, self.module) | {"scales": quantization_scales(self.module)}

    def gradient_norm(self) -> float | None:
        """Return the norm of the first step's gradient; None where the optimizer does not tell it."""
        if self._plan.config.optimizer.clip_norm or self._files.folder:
            return float(self.norm_of_step() or 0.0)
        return first_gradient_norm(self.engine.basic_optimizer, self.trainable_parameters)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the groups of the optimizer inside DeepSpeed's."""
        return list(self.engine.basic_optimizer.param_groups)

    def norm_of_step(self) -> torch.Tensor | float | None:
        """Return the norm that ZeRO and DeepSpeed's wrappers compute in every step, or else clipping; None without."""
        norm: torch.Tensor | float | None = self.engine.get_global_grad_norm()
        return self._clipped_norm if norm is None else norm

    def scaled_step(self) -> tuple[float, bool] | None:
        """Return the factor of the last step's losses, and whether its update was skipped; None without a factor."""
        return self._scaled_step

    def _clip(self) -> None:
        """Clip as DeepSpeed does without ZeRO and wrappers, whose own method drops the norm (0.19.8)."""
        self._clipped_norm = clip_grad_norm_(
            self.module.parameters(), max_norm=self.engine.gradient_clipping(), mpu=self.engine.mpu
        )

    def offloaded(self) -> frozenset[str]:
        """Return the kinds of state that DeepSpeed keeps on the host."""
        return offloaded_kinds(self.engine, self.module)

    def file_bytes(self) -> dict[str, int]:
        """Return the bytes of this rank's files by kind of state."""
        return self._files.bytes_by_kind()

    def swap_buffers(self) -> list[torch.Tensor]:
        """Return the buffers in host memory through which states pass from and to the files."""
        return swap_buffers(self.engine)

    def remove_files(self) -> None:
        """Remove this rank's files."""
        self._files.remove()

    def what_ran(self) -> WhatRan:
        """Return the classes, the backend and the ZeRO stage that DeepSpeed has made of the plan."""
        stage = self.engine.zero_optimization_stage()
        in_fp32 = self._sequences.reduces_in_fp32(stage)
        ran: WhatRan = {
            "attention_implementation": self.module.config._attn_implementation,
            "model_class": assembly.class_name(self.module),
            **assembly.updated_by(self.engine.basic_optimizer),
            "engine_optimizer_class": assembly.class_name(self.engine.optimizer),
            "backend": torch.distributed.get_backend(),
            "reduced_in": str(torch.float32 if in_fp32 else self.engine.communication_data_type),
            "zero_stage": stage,
        }
        if stage:
            ran["overlap_comm"] = bool(self.engine.zero_overlap_comm())
        ran |= chunks_that_ran(self.module) | results_that_were_kept(self.module) | self._files.traffic()
        ran |= moved(self._around_forward) | products_that_ran(self.module)
        return ran | assembly.experts_that_ran(self.module.config)

    def _model(self) -> PreTrainedModel:
        # Parameters are partitioned as they are created. Models with 4-bit layers are the exception: quantization needs
        # whole matrices, so deepspeed.initialize partitions them later.
        if self._techniques.zero_stage == 3 and not self._techniques.quantization:
            # On CPU (0.19.8) zero.Init ignores its dtype argument, but not the bf16 section or its absence.
            # Weights are filled below, and transformers would set the padding's row of an embedding that is elsewhere.
            with deepspeed.zero.Init(config_dict_or_path=self._files.in_config(self._plan.engine_config)), unfilled():
                model = assembly.unseeded_model(self._plan, self._device)
            model.tie_weights()
            with init_empty_weights(include_buffers=False):
                building.take_buffers(model, assembly.unseeded_model(self._plan, self._device))
            self._fill_partitioned(model)
            if self._techniques.compilation:
                # Each layer is gathered as a whole, with hooks around it: hooks inside would cut its graph.
                set_z3_leaf_modules(model, list({type(layer) for layer in decoder_layers(model)}))
        else:
            model = assembly.seeded_model(self._plan, self._device)
        module = assembly.with_atoms(model, self._plan)
        assembly.compile_atom(module, self._method)
        return module

    def _fill_partitioned(self, model: nn.Module) -> None:
        source, first = weights_of(self._plan.config)(model), torch.distributed.get_rank() == 0
        for name, parameter in model.named_parameters():
            with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
                if first:
                    source(name, parameter.data)

    def _optimizer(self) -> torch.optim.Optimizer | None:
        return (
            None
            if "optimizer" in self._plan.engine_config
            else assembly.optimizer(self._plan, assembly.trained_groups(self._plan, self.module))
        )


def undo_first_step(wrapper: FP16_UnfusedOptimizer) -> None:
    """Undo the step with zero gradients that the wrapper took to allocate the moments.

    It has decayed the weights, and Adam would count one step too many.
    """
    wrapper.optimizer.state.clear()
    for computing, masters in zip(wrapper.fp16_groups, wrapper.fp32_groups, strict=True):
        for parameter, master in zip(computing, masters, strict=True):
            master.data.copy_(parameter.data)


def join(device: torch.device) -> None:
    """Meet the other ranks; DeepSpeed knows the device by its accelerator."""
    use_built_ops()
    deepspeed.init_distributed(timeout=PEERS_TIMEOUT)


def build(plan: TrainingPlan, device: torch.device) -> DeepSpeedTraining:
    """Build the training step, ready to run; call `join` first."""
    return DeepSpeedTraining(plan, device)


if __name__ == "__main__":
    end_imports()
    run_rank(join, build)
