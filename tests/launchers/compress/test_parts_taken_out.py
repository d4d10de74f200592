"""Channels, heads and layers that are taken out, and training afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_llama import MakePlan
from transformers import AutoConfig, AutoModelForCausalLM

from llmexp.errors import ConfigError
from llmexp.launchers.compress.layer_dropping import drop_layers, nlls_without_each, without_layer
from llmexp.launchers.compress.loading import batches, mean_nll
from llmexp.launchers.compress.pruning import prune
from llmexp.launchers.compress.quality import nll_of
from llmexp.launchers.compress.recovery import endless, recover
from llmexp.launchers.compress.text import SplitText, split_text

pytestmark = pytest.mark.long
CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
}


@pytest.fixture(scope="module")
def text(trained_llama: Path) -> SplitText:
    from llmexp.compress.config import CalibrationText

    return split_text(
        CalibrationText(seq_len=64, calibration_sequences=64, held_out_documents=8, document_tokens=384), 0, 320
    )


def _load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def _random(family: str, **sizes: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES | sizes)).eval()


def _tokens() -> list[torch.Tensor]:
    return [torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(seed)) for seed in range(2)]


def test_the_layer_that_goes_is_one_whose_absence_costs_least(trained_llama: Path, text: SplitText) -> None:
    read = batches(text.calibration[:16], 8, CPU)
    nlls = nlls_without_each(model := _load(trained_llama), read)
    worst = max(range(4), key=nlls.__getitem__)
    dropped = drop_layers(model, 0.25, read)
    assert dropped == [min(range(4), key=nlls.__getitem__)]
    without_layer(other := _load(trained_llama), worst)
    kept, lost = (nll_of(each, text.held_out_parts, CPU) for each in (model, other))
    assert kept + 0.3 < lost


def test_layers_go_one_at_a_time(trained_llama: Path, text: SplitText) -> None:
    """The second is chosen without the first, and both are told by their numbers in the original."""
    read = batches(text.calibration[:16], 8, CPU)
    model = _load(trained_llama)
    first, second = drop_layers(model, 0.5, read)
    assert first != second
    assert model.config.num_hidden_layers == len(model.model.layers) == 2
    left = _load(trained_llama)
    for number in sorted((first, second), reverse=True):
        without_layer(left, number)
    assert nll_of(left, text.held_out_parts, CPU) == pytest.approx(nll_of(model, text.held_out_parts, CPU))


def test_the_worthiest_channels_stay(trained_llama: Path, text: SplitText) -> None:
    """As many channels that are chosen by chance cost several times more."""
    read = batches(text.calibration, 8, CPU)
    prune(chosen := _load(trained_llama), "mlp", 0.5, read)
    by_chance = _load(trained_llama)
    torch.manual_seed(0)
    for layer in by_chance.model.layers:
        gone = torch.randperm(192)[:96]
        layer.mlp.down_proj.weight.data[:, gone] = 0
    original = nll_of(_load(trained_llama), text.held_out_parts, CPU)
    costs = [nll_of(each, text.held_out_parts, CPU) - original for each in (chosen, by_chance)]
    assert 2 * costs[0] < costs[1]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("method", ["mlp", "heads", "layers"])
def test_each_family_is_loaded_as_it_was_saved(family: str, method: str, tmp_path: Path) -> None:
    model, read = _random(family), _tokens()
    if method == "layers":
        drop_layers(model, 0.25, read)
    else:
        prune(model, method, 0.5, read)
    model.save_pretrained(tmp_path)
    loaded, told = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        torch.testing.assert_close(loaded(read[0]).logits, model(read[0]).logits)
    sizes = (loaded.config.intermediate_size, loaded.config.num_key_value_heads, loaded.config.num_hidden_layers)
    assert sizes == {"mlp": (24, 4, 4), "heads": (48, 2, 4), "layers": (48, 4, 3)}[method]
    assert loaded.config.num_attention_heads == {"heads": 4}.get(method, 8)


@pytest.mark.parametrize("method", ["mlp", "heads"])
def test_parts_that_do_nothing_go_first(method: str) -> None:
    """Without channels or groups that multiply nothing, the model says what it said."""
    model, read = _random("qwen2"), _tokens()
    with torch.no_grad():
        for number, layer in enumerate(model.model.layers):
            if method == "mlp":
                layer.mlp.down_proj.weight[:, number : number + 12] = 0
                layer.mlp.up_proj.weight[number : number + 12] = 0
                layer.mlp.gate_proj.weight[number : number + 12] = 0
            else:
                group = slice(16 * number, 16 * number + 16)
                layer.self_attn.o_proj.weight[:, group] = 0
                layer.self_attn.v_proj.weight[8 * number : 8 * number + 8] = 0
        said = model(read[0]).logits
        nll = mean_nll(model, read[0])
    prune(model, method, 0.25, read)
    with torch.no_grad():
        torch.testing.assert_close(model(read[0]).logits, said)
        torch.testing.assert_close(mean_nll(model, read[0]), nll)


def test_kinds_of_attention_go_with_their_layers() -> None:
    kinds = ["full_attention", "sliding_attention"] * 2
    model = _random("qwen3", layer_types=kinds, sliding_window=4, use_sliding_window=True)
    without_layer(model, 1)
    assert model.config.layer_types == ["full_attention", "full_attention", "sliding_attention"]
    assert [layer.self_attn.layer_idx for layer in model.model.layers] == [0, 1, 2]


def test_other_families_are_refused() -> None:
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("gpt2", n_embd=32, n_layer=2, n_head=4, vocab_size=64)
    )
    with pytest.raises(ConfigError, match="takes parts out of llama, mistral, qwen2, qwen3, not of gpt2"):
        prune(model, "mlp", 0.5, _tokens())


def test_a_llama_keeps_a_number_of_heads_that_divides_its_width() -> None:
    with pytest.raises(ConfigError, match=r"leaves 6 heads, .* divide hidden_size=32: take 0\.75 or 0\.5$"):
        prune(_random("llama"), "heads", 0.25, _tokens())


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("recovery", ["all", "lora", "norms"])
def test_training_afterwards_recovers_some_of_the_loss(
    recovery: str, trained_llama: Path, text: SplitText, compress_plan: MakePlan
) -> None:
    prune(model := _load(trained_llama), "heads", 0.5, batches(text.calibration, 8, CPU))
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    lost = nll_of(model, text.held_out_parts, CPU)
    plan = compress_plan("heads", share=0.5, recovery=recovery, recovery_steps=15)
    model = recover(model, plan.config.compress, endless(text.calibration, 0, CPU))
    assert nll_of(model, text.held_out_parts, CPU) + 0.01 < lost
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    norms = {name for name in before if "norm" in name}
    matrices = {name for name in before if "proj" in name}
    assert changed == {"all": before.keys(), "lora": matrices, "norms": norms}[recovery]


def test_weights_of_16_bits_are_trained_in_more_and_saved_as_they_were(
    trained_llama: Path, text: SplitText, compress_plan: MakePlan
) -> None:
    model = AutoModelForCausalLM.from_pretrained(trained_llama, dtype=torch.bfloat16)
    rotary = model.model.rotary_emb.inv_freq.clone()
    plan = compress_plan("layers", share=0.5, recovery="norms", recovery_steps=1)
    model = recover(model, plan.config.compress, endless(text.calibration, 0, CPU))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert torch.equal(model.model.rotary_emb.inv_freq, rotary)
    assert not model.training
