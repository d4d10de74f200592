"""One process beside a server: its places, its noise, and the weights that it computes with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoints import write_with_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from llmexp.errors import ConfigError
from llmexp.launchers.serving.quality.comparing import ReferenceTask
from llmexp.launchers.serving.quality.reference import compare
from llmexp.launchers.serving.weights.int4_writer import rounded_to
from llmexp.launchers.serving.weights.model_folder import FolderRequest
from llmexp.launchers.serving.weights.model_writer import write
from llmexp.schema import DenseModel, Dtype
from llmexp.serving.analysis.quality import judge_answers
from llmexp.serving.record.quality import AnswerRecord, QualityRecord, QualitySummary

MODEL = DenseModel(
    name="small",
    architecture="llama",
    vocab_size=96,
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    max_positions=64,
)
PROMPTS = [[(start + 7 * index) % 96 for index in range(1, 13)] for start in range(6)]
TOKENS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose layers change what the embedding says: with the small weights of a folder they hardly would."""
    place = tmp_path_factory.mktemp("weights")
    write(FolderRequest(model=MODEL, dtype="fp32", seed=0), place)
    model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data *= 6
    model.save_pretrained(place)
    return place


def served(folder: Path, dtype: Dtype, changed: str = "") -> list[AnswerRecord]:
    """Answers of a server: by transformers' own generate."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, {"fp32": "float32"}.get(dtype, "bfloat16"))
    )
    if changed == "rotary":
        model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq / 8
    cut = 1 if changed == "prompt" else 0
    ids = torch.tensor(PROMPTS)[:, cut:]
    out = model.generate(
        ids, max_new_tokens=TOKENS, do_sample=False, output_logits=True, return_dict_in_generate=True, eos_token_id=None
    )
    logprobs = torch.stack([step.float().log_softmax(-1) for step in out.logits], 1)
    tokens = out.sequences[:, ids.shape[1] :]
    told = logprobs.gather(2, tokens[:, :, None])[:, :, 0]
    return [
        AnswerRecord(prompt=prompt, tokens=each.tolist(), logprobs=said.tolist())
        for prompt, each, said in zip(PROMPTS, tokens, told, strict=True)
    ]


def judged(folder: Path, dtype: Dtype, answers: list[AnswerRecord]) -> QualitySummary:
    task = ReferenceTask(folder=folder, dtype=dtype, device="cpu", output_tokens=TOKENS, answers=answers)
    found = compare(task)
    assert len(found.tokens) == len(PROMPTS) * TOKENS
    return judge_answers(QualityRecord(answers=found.answers, tokens=found.tokens))


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_model_itself_gives_the_same_answers(folder: Path, dtype: Dtype) -> None:
    found = judged(folder, dtype, served(folder, dtype))
    assert found.agreeing_tokens == found.counted_tokens > 30
    assert found.verdict in ("same", "not told"), found.words
    assert 0 < (found.noise_nats or 0) < (1e-3 if dtype == "fp32" else 1)


@pytest.mark.parametrize("changed", ["rotary", "prompt"])
def test_a_server_that_computes_something_else_is_told(folder: Path, changed: str) -> None:
    found = judged(folder, "fp32", served(folder, "fp32", changed))
    assert found.verdict == "changed"
    assert found.agreeing_tokens < found.counted_tokens


def test_logprobs_of_other_weights_are_told_where_tokens_are_the_same(folder: Path) -> None:
    answers = served(folder, "fp32")
    warmer = [
        answer.model_copy(update={"logprobs": [each * 1.001 for each in answer.logprobs or ()]}) for answer in answers
    ]
    found = judged(folder, "fp32", warmer)
    assert (found.verdict, found.agreeing_tokens) == ("changed", found.counted_tokens)


def test_one_other_token_changes_one_place_alone(folder: Path) -> None:
    answers = served(folder, "fp32")
    tokens = list(answers[2].tokens or ())
    tokens[4] = (tokens[4] + 1) % MODEL.vocab_size
    # The places behind it are those of the server's own tokens, which are no longer greedy ones of these.
    short = answers[2].model_copy(update={"tokens": tokens[:5], "logprobs": None})
    found = compare(
        ReferenceTask(folder=folder, dtype="fp32", device="cpu", output_tokens=TOKENS, answers=[*answers[:2], short])
    )
    wrong = [(each.answer, each.place) for each in found.tokens if each.token != each.likeliest]
    assert wrong == [(2, 4)]


def test_a_token_that_the_vocabulary_does_not_have_is_refused(folder: Path) -> None:
    answers = [AnswerRecord(prompt=[1], tokens=[96])]
    with pytest.raises(ConfigError, match="token 96, and the vocabulary has 96"):
        compare(ReferenceTask(folder=folder, dtype="fp32", device="cpu", output_tokens=1, answers=answers))


def test_a_text_of_a_usual_tokenizer_is_divided_as_the_server_chose_its_tokens(tmp_path: Path) -> None:
    """A random model takes tokens that the tokenizer would not make of their text."""
    write_with_tokenizer(tmp_path / "mine")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "mine", dtype=torch.float32)
    model.generation_config = GenerationConfig(do_sample=False)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "mine")
    prompts = [tokenizer(text).input_ids for text in ("import os", "def f(x): return x", "caf\u00e9 \u2615", "class A")]
    made = [model.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, do_sample=False)[0] for prompt in prompts]
    tokens = [each[len(prompt) :].tolist() for prompt, each in zip(prompts, made, strict=True)]
    texts = [tokenizer.decode(each, skip_special_tokens=True) for each in tokens]
    assert any(tokenizer(text).input_ids != each for text, each in zip(texts, tokens, strict=True))
    told = [AnswerRecord(prompt=prompt, text=text) for prompt, text in zip(prompts, texts, strict=True)]
    other = told[0].model_copy(update={"text": texts[0] + "!"})
    task = ReferenceTask(folder=tmp_path / "mine", dtype="fp32", device="cpu", output_tokens=TOKENS, answers=told)
    assert [answer.tokens for answer in compare(task).answers] == tokens
    found = compare(task.model_copy(update={"answers": [other]}))
    assert found.tokens == []
    assert "its text is none of 12 tokens" in found.answers[0].problem


def test_four_bit_weights_are_those_of_the_servers_folder(folder: Path) -> None:
    """The process would else judge the compression, where it is the server that is judged."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.weight.data = rounded_to("gptq", module.weight.data, 32)
    rounded = model.generate(torch.tensor(PROMPTS), max_new_tokens=TOKENS, do_sample=False, eos_token_id=None)
    tokens = rounded[:, len(PROMPTS[0]) :].tolist()
    answers = [AnswerRecord(prompt=prompt, tokens=each) for prompt, each in zip(PROMPTS, tokens, strict=True)]
    own = ReferenceTask(folder=folder, dtype="fp32", device="cpu", output_tokens=TOKENS, answers=answers)
    four = own.model_copy(update={"int4": "gptq", "group": 32})
    verdicts = [judge_answers(QualityRecord(answers=answers, tokens=compare(task).tokens)) for task in (own, four)]
    assert verdicts[0].verdict == "changed"
    assert verdicts[1].agreeing_tokens == verdicts[1].counted_tokens > 30
