"""Generates text with the weights that a run of llmexp kept.

MLflow loads this file with the weights, by `mlflow.pyfunc.load_model`. So it imports nothing of llmexp.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# Of the tokenizer of bytes, as llmexp's data.tokenizer=bytes has it.
BYTES, END_OF_BYTES = "bytes", 256


def _load_pyfunc(path: str, config: Mapping[str, str]) -> Generator:
    """Load the model in a folder of MLflow's, as its MLmodel configures it.

    `weights` is below the folder, or a path of its own. `base` is the model that an adapter was trained on, a folder or
    a hub name; `tokenizer` the same, or "bytes". Raises ValueError where an adapter has no base.
    """
    weights = Path(path, config["weights"])
    if not (weights / "adapter_config.json").exists():
        own = (weights / "tokenizer_config.json").exists() or not config["tokenizer"]
        tokenizer = str(weights) if own else config["tokenizer"]
        return Generator(AutoModelForCausalLM.from_pretrained(weights), tokenizer)
    from peft import PeftModel

    base = config["base"]
    if not base:
        raise ValueError("this adapter was trained on random weights: name a model by model_config={'base': …}")
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), weights)
    return Generator(model, config["tokenizer"] or base)


class Generator:
    """A model that continues texts, by the most likely token each time."""

    def __init__(self, model: Any, tokenizer: str) -> None:
        self._model = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer = None if tokenizer == BYTES else AutoTokenizer.from_pretrained(tokenizer)

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> list[str]:
        """Return what follows each text of the column `prompt`, at most `max_new_tokens` of it."""
        most = int((params or {}).get("max_new_tokens", 64))
        return [self._continued(prompt, most) for prompt in data["prompt"]]

    def _continued(self, prompt: str, most: int) -> str:
        asked = [*prompt.encode()] if self._tokenizer is None else self._tokenizer(prompt).input_ids
        end = END_OF_BYTES if self._tokenizer is None else self._tokenizer.eos_token_id
        ids = torch.tensor([asked], device=self._model.device)
        with torch.inference_mode():
            found = self._model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=most,
                do_sample=False,
                eos_token_id=end,
                pad_token_id=end,
            )[0, len(asked) :].tolist()
        return self._text(found)

    def _text(self, tokens: list[int]) -> str:
        if self._tokenizer is None:
            return bytes(token for token in tokens if token < END_OF_BYTES).decode(errors="replace")
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))
