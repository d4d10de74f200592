"""The tokens that a server's text stands for, where it tells no ids: a text alone could be divided in several ways."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from llmexp.serving.record.quality import AnswerRecord

# What a decoder writes for a character of which bytes are missing; servers wait with it.
_HALF = "\ufffd"


def with_tokens(model: PreTrainedModel, tokenizer: Any, answer: AnswerRecord, count: int) -> AnswerRecord:
    """Return an answer with so many tokens that are its text, or with the problem that there are none.

    At each place it is the token that the model finds likeliest of those with which the text goes on: the one that a
    server with the same weights has chosen. Else they are those that the tokenizer makes of the text.
    """
    own = tokenizer(answer.text, add_special_tokens=False).input_ids
    for found in (_chosen(model, tokenizer, answer, count), own):
        if len(found) == count and _written(tokenizer, found) == answer.text.rstrip(_HALF):
            return answer.model_copy(update={"tokens": found})
    return answer.model_copy(update={"problem": f"its text is none of {count} tokens, and the server tells no ids"})


@torch.inference_mode()
def _chosen(model: PreTrainedModel, tokenizer: Any, answer: AnswerRecord, count: int) -> list[int]:
    """Return the likeliest tokens that the text consists of, fewer where it cannot go on."""
    found: list[int] = []
    read, past = answer.prompt, None
    while len(found) < count:
        out: Any = model(input_ids=torch.tensor([read], device=model.device), past_key_values=past, use_cache=True)
        past, likeliest = out.past_key_values, out.logits[0, -1].argsort(descending=True).tolist()
        token = next((each for each in likeliest if answer.text.startswith(_written(tokenizer, [*found, each]))), None)
        if token is None:
            break
        found.append(token)
        read = [token]
    return found


def _written(tokenizer: Any, tokens: list[int]) -> str:
    text: str = tokenizer.decode(tokens, skip_special_tokens=True)
    return text.rstrip(_HALF)
