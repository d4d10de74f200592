"""Hugging Face's Trainer on a plan's model and data, as its documentation shows it.

Arguments are the plan, and the file for its tokens a second. The loop is plain: one process without a wrapper around
the model, SDPA, and defaults. The exceptions make the work equal: optimizer, no clipping, no reports.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from llmexp.launchers.data import loader
from llmexp.launchers.data.sequences import Sequences
from llmexp.launchers.models import building
from llmexp.launchers.models.weights import seeded
from llmexp.launchers.rank.frame import device_of
from llmexp.measure.clock import clock_for
from llmexp.measure.dtypes import torch_dtype
from llmexp.method import Method
from llmexp.training.config import AdamW
from llmexp.training.plan.training_plan import TrainingPlan


class Rows(Dataset[dict[str, torch.Tensor]]):
    """The sequences that llmexp's ranks read, a row a sample."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def __len__(self) -> int:
        return len(self._sequences.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._sequences.ids[index], "labels": self._sequences.labels[index]}


class Window(TrainerCallback):
    """The wall seconds of the measured steps.

    It waits for the device only at the window's two ends, as llmexp does.
    """

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        self._first, self._last = (
            plan.config.measure.warmup_steps,
            plan.config.measure.warmup_steps + plan.config.measure.steps,
        )
        self._clock = clock_for(device)
        self._start_s = self.wall_s = 0.0

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **others: Any) -> None:
        """Begin after the last warm-up step, end after the last step of all."""
        if state.global_step in (self._first, self._last):
            self._clock.synchronize()
            self._start_s, self.wall_s = time.perf_counter(), time.perf_counter() - self._start_s


def measure(plan: TrainingPlan, folder: str) -> float:
    """Return the positions a second over the plan's measured steps."""
    config = plan.config
    device = device_of(config.hardware, 0)
    shape = building.configuration(config.model)
    techniques, dtype = Method.parse(plan.method, config.task.name).techniques, torch_dtype(config.precision.parameters)
    options: dict[str, Any] = {
        "device": device,
        "weights": seeded(config.seed),
        "quantization": techniques.quantization,
    }
    model = building.build(shape, dtype, "sdpa", config.model.target, **options)
    if techniques.adapter:
        from llmexp.launchers.models.peft_adapters import adapted  # PEFT takes a second to import

        model = adapted(model, techniques.adapter, plan)
    window = Window(plan, device)
    _trainer(plan, model, folder, window).train()
    return config.measure.steps * plan.batch.global_ * config.data.seq_len / window.wall_s


def _trainer(plan: TrainingPlan, model: PreTrainedModel, folder: str, window: Window) -> Trainer:
    config, techniques = plan.config, Method.parse(plan.method, plan.config.task.name).techniques
    steps, constants = config.measure.warmup_steps + config.measure.steps, config.optimizer
    assert isinstance(constants, AdamW)
    sequences = loader.load(config.data, int(model.config.vocab_size), steps * plan.batch.global_, config.seed)
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=config.batch.micro,
        gradient_accumulation_steps=config.batch.accumulation,
        gradient_checkpointing=techniques.recomputation,
        optim="adamw_torch_fused",
        learning_rate=constants.lr,
        adam_beta1=constants.betas[0],
        adam_beta2=constants.betas[1],
        adam_epsilon=constants.eps,
        weight_decay=constants.weight_decay,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        use_cpu=config.hardware.device == "cpu",
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    return Trainer(model=model, args=arguments, train_dataset=Rows(sequences), callbacks=[window])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(TrainingPlan.read(Path(sys.argv[1])), scratch)
    Path(sys.argv[2]).write_text(json.dumps(found))
