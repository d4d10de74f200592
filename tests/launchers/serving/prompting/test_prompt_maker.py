"""Texts as exact tokens, and the words of a tokenizer whose texts give exact tokens back."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from checkpoints import write_with_tokenizer
from planning import make_plan
from transformers import AutoTokenizer

from llmexp.errors import BuildError, ConfigError
from llmexp.launchers.serving.prompting.maker import make
from llmexp.launchers.serving.prompting.source import MakerTask, PromptSource, prompt_source
from llmexp.serving.config.load import PromptTexts
from llmexp.serving.plan.serving_plan import ServingPlan

PROMPT = "def f{0}(x): return {0}  # caf\u00e9 \u2615"
RECORDS = [{"prompt": PROMPT.format(place), "completion": "Yes."} for place in range(9)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_with_tokenizer(tmp_path_factory.mktemp("checkpoint") / "mine")


@pytest.fixture
def texts(tmp_path: Path) -> PromptTexts:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return PromptTexts(path=f"{tmp_path}/a.jsonl")


def test_random_words_are_the_exact_tokens_of_their_text(folder: Path) -> None:
    alphabet = make(MakerTask(tokenizer=str(folder), vocab_size=600, is_own=True)).alphabet
    assert alphabet
    assert len(alphabet.words) >= 32
    assert alphabet.begin == [0], "the tokenizer's own, which it puts before a text"
    tokenizer, draw = AutoTokenizer.from_pretrained(folder), random.Random(1)
    for _ in range(20):
        ids = [0, *draw.choices(alphabet.tokens, k=60)]
        assert tokenizer(alphabet.text_of(ids)).input_ids == ids


def test_a_text_has_the_tokens_that_a_server_makes_of_it(folder: Path, texts: PromptTexts) -> None:
    made = make(MakerTask(tokenizer=str(folder), vocab_size=600, is_own=True, texts=texts, wanted=20, max_tokens=200))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert sorted(one.text for one in made.prompts) == sorted(record["prompt"] for record in RECORDS)
    assert all(one.ids == tokenizer(one.text).input_ids for one in made.prompts)
    assert {one.answer_tokens for one in made.prompts} == {len(tokenizer("Yes.", add_special_tokens=False).input_ids)}
    assert (made.read, made.left_out) == (9, 0)


def test_a_template_that_writes_the_first_token_does_not_double_it(folder: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path / "chat")
    (tmp_path / "a.jsonl").write_text('{"instruction": "Add.", "output": "3"}\n')
    task = MakerTask(tokenizer=f"{tmp_path}/chat", vocab_size=600, is_own=True, wanted=1, max_tokens=200)
    (prompt,) = make(task.model_copy(update={"texts": PromptTexts(path=f"{tmp_path}/a.jsonl")})).prompts
    assert prompt.text == "[user]Add."
    assert prompt.ids.count(0) == 1


def test_texts_without_room_are_left_out_and_none_is_an_error(texts: PromptTexts) -> None:
    task = MakerTask(tokenizer="bytes", vocab_size=512, is_own=False, texts=texts, wanted=5, max_tokens=200)
    longest = max(len(record["prompt"].encode()) for record in RECORDS)
    assert len(make(task.model_copy(update={"output_tokens": 10})).prompts) == 5
    with pytest.raises(ConfigError, match="none of 9 prompts fits with its output into 20 tokens"):
        make(task.model_copy(update={"max_tokens": 20, "output_tokens": longest}))


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(texts: PromptTexts) -> None:
    with pytest.raises(ConfigError, match="=bytes has 257 tokens, but the model's vocabulary only 256"):
        make(MakerTask(tokenizer="bytes", vocab_size=256, is_own=False, texts=texts))


def plan_of(texts: PromptTexts, *words: str) -> ServingPlan:
    given = (f"serve.texts.path={texts.path}", "serve.texts.tokenizer=bytes", *words)
    plan = make_plan("task=serve", "model=tiny", "hardware=cpu", "serve.requests=2", *given)
    assert isinstance(plan, ServingPlan)
    return plan


def test_load_points_and_warm_ups_have_texts_of_their_own(texts: PromptTexts) -> None:
    few, many = (plan_of(texts, "serve.rate=[1,2]", f"serve.warmup_requests={count}") for count in (1, 2))
    source = prompt_source(few)
    assert isinstance(source, PromptSource)

    def sent(plan: ServingPlan, is_warmup: bool) -> list[str]:
        counts = {True: "warmup", False: "requests"}
        return [
            source.of_request(plan, point, number, is_warmup).text
            for point in plan.points
            for number in range(getattr(point, counts[is_warmup]))
        ]

    assert len({*sent(few, True), *sent(few, False)}) == 6
    assert sent(few, False) == sent(many, False)
    assert source.account == {"texts_read": 6, "texts_left_out": 0, "texts_sent_again": 0}


def test_texts_that_are_too_few_are_sent_again_and_that_is_said(texts: PromptTexts) -> None:
    plan = plan_of(texts, "serve.rate=[1,2,3,4]", "serve.warmup_requests=1")
    assert prompt_source(plan).account["texts_sent_again"] == 12 - len(RECORDS)


def test_what_the_maker_says_is_the_reason(texts: PromptTexts) -> None:
    plan = plan_of(texts, "serve.texts.max_tokens=40", "serve.output.tokens=30")
    with pytest.raises(BuildError, match=r"the prompts cannot be made: .* none of 9 prompts fits"):
        prompt_source(plan)
