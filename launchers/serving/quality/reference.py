"""The program that computes what a server answered; comparing.py starts it with the task on its standard input.

It is given each prompt with the server's own tokens, so that every place is compared by itself: one other token changes
nothing behind it. Noise is what the served dtype and other layouts of the same computation change.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

if __name__ == "__main__":
    from llmexp.launchers.rank.starting import begin_imports, end_imports

    begin_imports()

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from llmexp.dtypes import SINGLE, bytes_of, format_of
from llmexp.errors import ConfigError
from llmexp.inputs.checkpoint import Checkpoint
from llmexp.launchers.models.building import ExactBuffers
from llmexp.launchers.serving.quality.comparing import ReferenceFound, ReferenceTask
from llmexp.launchers.serving.quality.reference_tokens import with_tokens
from llmexp.launchers.serving.weights.int4_writer import rounded_to
from llmexp.machine.memory import host_memory_left_bytes
from llmexp.schema import Dtype
from llmexp.serving.record.quality import AnswerRecord, ComparedToken

# The noise of a margin is taken over the likeliest token and so many others.
RIVALS = 4
Answers = Sequence[tuple[int, AnswerRecord]]
"""Answers whose tokens are known, with their numbers."""


@dataclass(frozen=True)
class ExactPlace:
    """A place of an answer by the exact computation."""

    token: int
    likeliest: list[int]
    """The likeliest token, and its rivals."""
    margins: Tensor
    """Of the likeliest token over each rival, in nats."""
    logprob: float

    def noise(self, logits: Tensor) -> tuple[float, float]:
        """Return how far other logits of this place move the margins at most, and the logprob of its token."""
        logits = logits.double()
        margins = logits[self.likeliest[0]] - logits[self.likeliest[1:]]
        logprob = (logits[self.token] - logits.logsumexp(0)).item()
        return (margins - self.margins).abs().max().item(), abs(logprob - self.logprob)


def compare(task: ReferenceTask) -> ReferenceFound:
    """Return each token of the answers beside what one process computes; raises ConfigError where it has no room."""
    exact, model = exact_of(task.dtype), _loaded(task)
    model, answers = model.to(_device(task, model, exact)), task.answers
    if any(answer.tokens is None for answer in answers):
        tokenizer = AutoTokenizer.from_pretrained(task.folder)
        answers = [
            answer if answer.tokens else with_tokens(model, tokenizer, answer, task.output_tokens) for answer in answers
        ]
    return ReferenceFound(exact_dtype=exact, tokens=compared(model, task.dtype, answers), answers=answers)


def compared(model: PreTrainedModel, dtype: Dtype, known: Sequence[AnswerRecord]) -> list[ComparedToken]:
    """Return each token of the answers beside what a model computes, with the noise of a dtype; it ends in this one.

    Raises ConfigError for a token that the vocabulary does not have.
    """
    answers, buffers = list(enumerate(known)), ExactBuffers(model)
    size = model.get_input_embeddings().weight.shape[0]
    if (
        odd := next((token for answer in known for token in answer.tokens or () if not 0 <= token < size), None)
    ) is not None:
        raise ConfigError(f"the server answered with token {odd}, and the vocabulary has {size}")

    def cast(to: str) -> None:
        model.to(dtype=_torch(to))
        # Servers compute the rotary angles in fp32 whatever the weights are in.
        buffers.restore(model.device)

    cast(exact_of(dtype))
    places = {key: exact_place(logits, token) for key, token, logits in _read(model, answers, alone=True)}
    noises: dict[tuple[int, int], list[tuple[float, float]]] = {key: [] for key in places}
    before = model.config._attn_implementation
    cast(dtype)
    for alone, attention in ((True, "sdpa"), (False, "eager")):
        model.set_attn_implementation(attention)
        for key, _, logits in _read(model, answers, alone):
            noises[key].append(places[key].noise(logits))
    model.set_attn_implementation(before)
    return [_compared(known[key[0]], key, places[key], noises[key]) for key in sorted(places)]


def exact_of(dtype: Dtype) -> str:
    """Return the dtype beside whose results those of another are noise."""
    return "fp64" if dtype == SINGLE else SINGLE


def exact_place(logits: Tensor, token: int) -> ExactPlace:
    """Return a place by its logits."""
    logits = logits.double()
    likeliest = logits.topk(RIVALS + 1).indices.tolist()
    margins = logits[likeliest[0]] - logits[likeliest[1:]]
    return ExactPlace(token, likeliest, margins, (logits[token] - logits.logsumexp(0)).item())


def _compared(
    answer: AnswerRecord, key: tuple[int, int], place: ExactPlace, noises: Sequence[tuple[float, float]]
) -> ComparedToken:
    told = answer.logprobs
    return ComparedToken(
        answer=key[0],
        place=key[1],
        token=place.token,
        likeliest=place.likeliest[0],
        margin=place.margins[0].item(),
        logprob=place.logprob,
        server_logprob=told[key[1]] if told else None,
        margin_noise=max(margin for margin, _ in noises),
        logprob_noise=max(logprob for _, logprob in noises),
    )


def _read(model: PreTrainedModel, answers: Answers, alone: bool) -> Iterator[tuple[tuple[int, int], int, Tensor]]:
    """Yield each place of the answers with its token and its logits; in one batch are those of one length."""
    known = [(number, answer) for number, answer in answers if answer.tokens]
    by_length = groupby(sorted(known, key=_lengths), key=_lengths)
    for _, group in by_length:
        batch = list(group)
        for part in [[each] for each in batch] if alone else [batch]:
            for (number, answer), logits in zip(part, _logits(model, part), strict=True):
                for place, token in enumerate(answer.tokens or ()):
                    yield (number, place), token, logits[place]


def _lengths(numbered: tuple[int, AnswerRecord]) -> tuple[int, int]:
    return len(numbered[1].prompt), len(numbered[1].tokens or ())


@torch.inference_mode()
def _logits(model: PreTrainedModel, answers: Answers) -> Tensor:
    """Return the logits by which each token of answers of one length was chosen: answers by places by vocabulary."""
    ids = [[*answer.prompt, *(answer.tokens or ())] for _, answer in answers]
    count = len(answers[0][1].tokens or ())
    keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
    inputs: dict[str, Any] = {"input_ids": torch.tensor(ids, device=model.device), "use_cache": False}
    logits: Tensor = model(**inputs, **({"logits_to_keep": count + 1} if keeps else {})).logits
    return logits[:, -count - 1 : -1].cpu()


def _loaded(task: ReferenceTask) -> PreTrainedModel:
    """Load the folder's weights as a server has them: in its dtype, and rounded where its own folder has four bits."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        task.folder, dtype=_torch(task.dtype), attn_implementation="sdpa"
    ).eval()
    if task.int4:
        head = model.get_output_embeddings()
        for module in model.modules():
            if isinstance(module, nn.Linear) and module is not head:
                module.weight.data = rounded_to(task.int4, module.weight.data, task.group)
    return model


def _device(task: ReferenceTask, model: PreTrainedModel, exact: str) -> torch.device:
    """Return the GPU where it has room, else the host; raises ConfigError where that has none either."""
    needed = round(1.3 * sum(prod(each.shape) for each in model.parameters()) * bytes_of(exact))
    if task.device == "cuda" and torch.cuda.mem_get_info()[0] > needed:
        return torch.device("cuda")
    left = host_memory_left_bytes()
    if left < needed:
        raise ConfigError(f"the model in {exact} needs {needed / 1e9:.3g} GB, and this host has {left / 1e9:.3g} left")
    return torch.device("cpu")


def _torch(dtype: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, format_of(dtype).torch)
    return found


def main() -> None:
    """Answer on standard output; bad input ends with one line."""
    answer = sys.stdout
    # What libraries print is no part of the answer.
    sys.stdout = sys.stderr
    logging.disable_progress_bar()
    task = ReferenceTask.model_validate_json(sys.stdin.buffer.read())
    try:
        stored = sum(prod(tensor.shape) for tensor in Checkpoint.read(task.folder).tensors.values())
        if stored * bytes_of(task.dtype) > host_memory_left_bytes():
            raise ConfigError(f"this host has no room for {stored * bytes_of(task.dtype) / 1e9:.3g} GB of weights")
        found = compare(task)
    except ConfigError as error:
        sys.exit(" ".join(str(error).split()))
    answer.write(found.model_dump_json())


if __name__ == "__main__":
    end_imports()
    main()
