"""Writes a Llama model with the tokenizer of words as one GGUF file, which llama.cpp reads."""

from __future__ import annotations

from pathlib import Path

import torch
from gguf import MODEL_ARCH, GGUFWriter, TokenType, get_tensor_name_map
from transformers import LlamaConfig, PreTrainedModel

from llmexp.launchers.serving.words import BLANK, vocabulary

FILE = "model.gguf"
# Words are looked up before any merge; the file must have one, and this one makes no word.
_A_MERGE = f"{BLANK} a"
# llama.cpp takes some token for the end, and never generates it: the file has one more for this, with a row of zeros.
_END = "<end>"
_OF_TOKENS = ("embed_tokens", "lm_head")


def write_gguf(model: PreTrainedModel, folder: Path) -> None:
    """Write the model's parameters in fp32, with its sizes and words, to model.gguf."""
    config: LlamaConfig = model.config
    writer = GGUFWriter(folder / FILE, "llama")
    _sizes(writer, config)
    _words(writer, config.vocab_size)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    for name, parameter in model.named_parameters():
        stem, _, leaf = name.rpartition(".")
        if not (tied and stem == "lm_head"):
            weight = _as_stored(stem.rpartition(".")[2], parameter.detach(), config)
            writer.add_tensor(f"{names.get_name(stem)}.{leaf}", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _sizes(writer: GGUFWriter, config: LlamaConfig) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size + 1)


def _words(writer: GGUFWriter, vocab_size: int) -> None:
    """Name a pre-tokenizer whose words are a blank and its letters, and which looks for whole words first."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([BLANK + word[1:] for word in vocabulary(vocab_size)] + [_END])
    writer.add_token_types([TokenType.NORMAL] * vocab_size + [TokenType.CONTROL])
    writer.add_bos_token_id(vocab_size)
    writer.add_eos_token_id(vocab_size)
    writer.add_token_merges([_A_MERGE])
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)


def _as_stored(layer: str, weight: torch.Tensor, config: LlamaConfig) -> torch.Tensor:
    """Add the end token's row, and reorder the rows of queries and keys.

    GGUF rotates neighbors, transformers a head's first and second half.
    """
    if layer in _OF_TOKENS:
        return torch.cat([weight, weight.new_zeros(1, weight.shape[1])])
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(layer)
    if heads is None:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape).contiguous()
