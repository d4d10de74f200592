"""The program that writes a model's folder; model_folder.py starts it with the request on its standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    from llmexp.launchers.rank.starting import begin_imports, end_imports

    begin_imports()
    # Where it is installed, saving a model imports it for a second.
    sys.modules["deepspeed"] = None  # type: ignore[assignment]

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.utils import logging

from llmexp.errors import ConfigError
from llmexp.launchers.models.building import build, configuration
from llmexp.launchers.models.weights import seeded
from llmexp.launchers.serving.weights.int4_writer import write_int4
from llmexp.launchers.serving.weights.model_folder import FolderRequest
from llmexp.launchers.serving.words import BLANK, vocabulary
from llmexp.measure.dtypes import torch_dtype
from llmexp.schema import HfModel
from llmexp.serving.plan.quantized import INT4, group_size


def write(wanted: FolderRequest, folder: Path) -> None:
    """Write configuration, tokenizer and, where they are wanted, weights of the dtype; or the model's adapters."""
    if wanted.adapters:
        from llmexp.launchers.serving.weights.adapter_writer import write_adapters  # PEFT takes a second to import

        write_adapters(wanted, wanted.adapters, folder)
        return
    config = _without_special_tokens(configuration(wanted.model))
    config.dtype = torch_dtype(wanted.dtype)
    config.use_cache = True
    tokenizer(config.vocab_size, config.max_position_embeddings).save_pretrained(folder)
    # Greedy, as a sampled output is no work that can be compared; no token ends an output before its length.
    generation = GenerationConfig(do_sample=False)
    if wanted.weights == "none":
        config.architectures = [_class_of(config)]
        config.save_pretrained(folder)
        generation.save_pretrained(folder)
        return
    model = build(config, torch_dtype(wanted.dtype), "sdpa", weights=seeded(wanted.seed), device=torch.device("cpu"))
    if wanted.weights == "gguf":
        from llmexp.launchers.serving.weights.gguf_writer import write_gguf  # only llama.cpp's users have gguf

        write_gguf(model, folder)
        return
    if wanted.weights in INT4:
        model.config.use_cache, model.config.architectures = True, [_class_of(config)]
        write_int4(model, wanted.weights, group_size(wanted.model), folder)
        generation.save_pretrained(folder)
        return
    model.generation_config = generation
    model.config.use_cache = True  # a model that is built for training keeps none
    model.save_pretrained(folder)


def tokenizer(vocab_size: int, max_positions: int) -> PreTrainedTokenizerFast:
    """Return the tokenizer of the words, which has no special token."""
    tokens = {BLANK + word[1:]: token for token, word in enumerate(vocabulary(vocab_size))}
    made = Tokenizer(models.BPE(vocab=tokens, merges=[], ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=max_positions)


def _without_special_tokens(config: PreTrainedConfig) -> PreTrainedConfig:
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    return config


def _class_of(config: PreTrainedConfig) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]


def add_older_words(folder: Path) -> None:
    """Write beside the words of transformers 5 those of 4, which the servers that are frozen or slow to change read.

    Without them 4.49 refuses the tokenizer, and takes its own default for a rotary base that the model gives.
    """
    config, tokens = folder / "config.json", folder / "tokenizer_config.json"
    if not config.exists():
        return  # a GGUF file holds everything, and adapters have other words
    said = json.loads(config.read_text())
    base = (said.get("rope_parameters") or {}).get("rope_theta")
    older = {"torch_dtype": said["dtype"]} | ({} if base is None else {"rope_theta": base})
    config.write_text(json.dumps(said | older, indent=2) + "\n")
    named = json.loads(tokens.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    tokens.write_text(json.dumps(named, indent=2) + "\n")


def main() -> None:
    """Write the folder that the first argument names; bad input ends with one line."""
    logging.disable_progress_bar()
    wanted = FolderRequest.model_validate_json(sys.stdin.buffer.read())
    if isinstance(wanted.model, HfModel) and wanted.model.checkpoint:
        sys.exit(f"model={wanted.model.name} has weights of its own: serve model.path={wanted.model.path}")
    try:
        write(wanted, Path(sys.argv[1]))
        add_older_words(Path(sys.argv[1]))
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    end_imports()
    main()
