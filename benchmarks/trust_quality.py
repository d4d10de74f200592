"""How often the verdict on a server's answers is wrong: of models that compute right, and of changed ones.

The models are random and small, but what they compute is not made up: a "server" is the same model with a cache of keys
and values, a token at a time and in a batch, in bf16 or fp32, and with what a case changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.figure import Figure
from benchmarks.rates import rate
from llmexp.launchers.serving.quality.reference import compared
from llmexp.launchers.serving.weights.int4_writer import rounded_to
from llmexp.schema import Dtype
from llmexp.serving.analysis.quality import judge_answers
from llmexp.serving.record.quality import AnswerRecord, QualityRecord, QualitySummary

PROMPTS, PROMPT_TOKENS, OUTPUT_TOKENS, VOCABULARY = 16, 64, 16, 512
# So large that layers change what the embedding says, as those of trained models do.
WEIGHT_STD = 0.1
DEVICES = 4
THETA, WRONG_THETA = 10_000.0, 500_000.0
TORCH: Mapping[Dtype, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}
Change = Callable[[LlamaForCausalLM], object]
FALSE_ALARMS = 2.0


def quality_verdicts(tries: int) -> Iterator[Figure]:
    """Yield the rates in percent, with and without logprobs; right servers are those that only round otherwise."""
    for dtype in ("bf16", "fp32"):
        for name, change in RIGHT.items():
            found = _verdicts(dtype, change, tries)
            for told, verdicts in found.items():
                yield rate(
                    f"right answers called changed: {name}, {dtype}, {told}", verdicts, tries, limit=FALSE_ALARMS
                )
        for name, change in WRONG.items():
            for told, verdicts in _verdicts(dtype, change, tries).items():
                yield rate(f"called changed: {name}, {dtype}, {told}", verdicts, tries)


def _verdicts(dtype: Dtype, change: Change, tries: int) -> dict[str, int]:
    """Return how often answers are called changed, by whether the server tells logprobs."""
    found = [judged(dtype, change, seed) for seed in range(tries)]
    return {
        told: sum(each[told].verdict == "changed" for each in found) for told in ("tokens alone", "tokens and logprobs")
    }


def judged(dtype: Dtype, change: Change, seed: int) -> dict[str, QualitySummary]:
    """Return the verdicts on one server without and with its logprobs."""
    generator = torch.Generator().manual_seed(seed)
    model = _model(generator).to(TORCH[dtype])
    prompts = torch.randint(VOCABULARY, (PROMPTS, PROMPT_TOKENS), generator=generator)
    server = copy.deepcopy(model)
    cut = change(server)
    answers = list(_answers(server, prompts, cut if isinstance(cut, int) else 0))
    tokens = compared(model, dtype, answers)
    silent = [token.model_copy(update={"server_logprob": None}) for token in tokens]
    return {
        "tokens alone": judge_answers(QualityRecord(answers=answers, tokens=silent)),
        "tokens and logprobs": judge_answers(QualityRecord(answers=answers, tokens=tokens)),
    }


@torch.inference_mode()
def _answers(server: LlamaForCausalLM, prompts: Tensor, cut: int) -> Iterator[AnswerRecord]:
    """Yield greedy answers from a cache; the server has lost so many tokens of each prompt."""
    read, past, tokens, logprobs = prompts[:, cut:], None, [], []
    for _ in range(OUTPUT_TOKENS):
        out = server(input_ids=read, past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, out.logits[:, -1].float()
        read = logits.argmax(-1, keepdim=True)
        tokens.append(read)
        logprobs.append(logits.log_softmax(-1).gather(1, read))
    for number in range(len(prompts)):
        yield AnswerRecord(
            prompt=prompts[number].tolist(),
            tokens=[int(each[number]) for each in tokens],
            logprobs=[float(each[number]) for each in logprobs],
        )


def _model(generator: torch.Generator) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, WEIGHT_STD, generator=generator)
    return model


class CutLinear(nn.Module):
    """A matrix over several devices that each have a part of its inputs, whose results are added in the dtype."""

    def __init__(self, whole: nn.Linear) -> None:
        super().__init__()
        self.parts = whole.weight.chunk(DEVICES, dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Add the parts up one by one, each rounded."""
        pieces = inputs.chunk(DEVICES, dim=-1)
        found = pieces[0] @ self.parts[0].T
        for piece, part in zip(pieces[1:], self.parts[1:], strict=True):
            found = found + piece @ part.T
        return found


def _linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    yield from ((name, each) for name, each in model.named_modules() if isinstance(each, nn.Linear))


def _over_devices(server: LlamaForCausalLM) -> None:
    for name, linear in list(_linears(server)):
        if name.endswith(("o_proj", "down_proj")):
            server.set_submodule(name, CutLinear(linear))


def _eager(server: LlamaForCausalLM) -> None:
    server.set_attn_implementation("eager")


def _int8(server: LlamaForCausalLM) -> None:
    """Round each row of every matrix of the layers to 255 values."""
    _rounded(server, lambda weight: torch.round(weight / (scale := weight.abs().amax(1, True) / 127)) * scale)


def _int4(server: LlamaForCausalLM) -> None:
    """Round to 16 values, 8 inputs to a scale, because 344 has no larger power of two."""
    _rounded(server, lambda weight: rounded_to("gptq", weight, 8))


def _rounded(server: LlamaForCausalLM, by: Callable[[Tensor], Tensor]) -> None:
    for name, linear in _linears(server):
        if name != "lm_head":
            linear.weight.data = by(linear.weight.data.float()).to(linear.weight.dtype)


def _rotary(server: LlamaForCausalLM) -> None:
    rotary = server.model.rotary_emb
    rotary.inv_freq = rotary.inv_freq ** (torch.tensor(WRONG_THETA).log() / torch.tensor(THETA).log())


def _epsilon(server: LlamaForCausalLM) -> None:
    """Take another small number into the norms than the model's 1e-6."""
    for module in server.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = 1e-3


def _without_a_layer(server: LlamaForCausalLM) -> None:
    server.model.layers = server.model.layers[:-1]


RIGHT: Mapping[str, Change] = {
    "a cache, in a batch": lambda _: None,
    "its attention by other kernels": _eager,
    f"over {DEVICES} devices": _over_devices,
}
WRONG: Mapping[str, Change] = {
    "weights in 8 bits": _int8,
    "weights in 4 bits": _int4,
    "another rotary base": _rotary,
    "another epsilon of norms": _epsilon,
    "a layer left out": _without_a_layer,
    "the first token of prompts lost": lambda _: 1,
}
