"""What the prompts of a run are made of; a child process reads texts and tokenizer, so that the client stays small.

Prompts are exact token ids wherever they come from. A server that takes text gets the text that its tokenizer turns
into exactly these ids, and what its usage counts is checked against them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import Field, TypeAdapter

from llmexp.errors import BuildError, ConfigError
from llmexp.launchers.serving import words
from llmexp.record.samples import Record
from llmexp.serving.config.load import PromptTexts
from llmexp.serving.plan.draws import DrawSeries
from llmexp.serving.plan.lengths import LengthDraw
from llmexp.serving.plan.served_model import CheckpointModel, served_model
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan

MAKER = "llmexp.launchers.serving.prompting.maker"
# Of a search nobody knows how many requests it sends; of so many texts later probes repeat some.
MOST_OF_SEARCH = 20_000


class Alphabet(Record):
    """The tokens of a usual tokenizer that stand for whole words: their texts one after the other give them back."""

    begin: list[int] = Field(description="that the tokenizer puts before a text")
    words: dict[int, str] = Field(description="empty where texts do not give exact tokens")
    strips: bool = Field(False, description="the first word of a text has no blank before it")
    vocab_size: int

    @property
    def tokens(self) -> list[int]:
        """The tokens that random prompts are drawn from, the same for every engine."""
        return list(self.words) or list(range(self.vocab_size))

    def text_of(self, ids: Sequence[int]) -> str:
        """Return the text of a random prompt."""
        said = "".join(self.words[token] for token in ids[len(self.begin) :])
        return said.removeprefix(" ") if self.strips else said


class TextPrompt(Record):
    """A text with its exact tokens."""

    ids: list[int]
    text: str
    answer_tokens: int = Field(0, description="of the recorded answer")


class MakerTask(Record):
    """What the child process is asked for, on its standard input."""

    tokenizer: str = Field(description="'bytes', or a folder or hub name")
    vocab_size: int
    is_own: bool = Field(description="the tokenizer is the served checkpoint's own")
    texts: PromptTexts | None = None
    wanted: int = 0
    max_tokens: int = Field(0, description="of a prompt with its output")
    output_tokens: int | None = Field(None, description="the longest that is asked for; None: the recorded answer's")
    seed: int = 0


class Made(Record):
    """What the child process answers, on its standard output."""

    alphabet: Alphabet | None = None
    prompts: list[TextPrompt] = Field(default_factory=list)
    read: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class PromptSource:
    """The alphabet of a served checkpoint, and the texts of a run, where it has them."""

    alphabet: Alphabet | None = None
    prompts: Sequence[TextPrompt] = ()
    account: dict[str, int] = field(default_factory=dict)
    """What became of the records that were read, for what_ran."""

    def text_of(self, ids: Sequence[int]) -> str:
        """Return a random prompt as text."""
        return self.alphabet.text_of(ids) if self.alphabet else words.text_of(ids)

    @cached_property
    def tokens(self) -> Sequence[int] | None:
        """The tokens of random prompts; None: the whole vocabulary."""
        return self.alphabet.tokens if self.alphabet else None

    def of_request(self, plan: ServingPlan, point: LoadPoint, number: int, is_warmup: bool) -> TextPrompt:
        """Return the text of a request: load points and warm-ups take others, until all have been sent.

        Warm-ups take them from the end, so that a measured request is the same however many come before it.
        """
        earlier = [each for each in plan.points if each.number < point.number]
        if point.probe:
            place = DrawSeries(plan.config.seed, point.number).below(len(self.prompts), "text", (0,)) + number
        elif is_warmup:
            place = -1 - number - sum(each.warmup for each in earlier)
        else:
            place = number + sum(each.requests for each in earlier)
        return self.prompts[place % len(self.prompts)]


def prompt_source(plan: ServingPlan) -> PromptSource:
    """Make the tokens of a run's texts, and find the words of its checkpoint; raises BuildError, and ConfigError."""
    task = _task(plan)
    if task is None:
        return PromptSource()
    made = _made(task)
    form = plan.server.form
    if made.alphabet and not made.alphabet.words and not (form.token_ids or task.texts):
        raise ConfigError(
            f"model={plan.config.model.name}: random words of its tokenizer do not give exact tokens as text, and "
            f"engine={plan.config.engine.name} takes only text: set serve.texts.path, or use vllm, sglang or lightllm"
        )
    return PromptSource(made.alphabet, made.prompts, _account(plan, made))


def _task(plan: ServingPlan) -> MakerTask | None:
    """Return what has to be made; None where llmexp's own words, or any token ids, are all that is sent."""
    config, model = plan.config, served_model(plan.config.model)
    texts, own = config.serve.texts, isinstance(model, CheckpointModel)
    if not (texts or own):
        return None
    place = texts.tokenizer if texts and texts.tokenizer else None
    folder = str(model.folder) if isinstance(model, CheckpointModel) else ""
    answers = texts is not None and texts.answers
    return MakerTask(
        tokenizer=place or folder,
        vocab_size=model.vocab_size,
        is_own=own,
        texts=texts,
        wanted=_wanted(plan) if texts else 0,
        max_tokens=plan.positions,
        output_tokens=None if answers else LengthDraw.of(config.serve.output).longest,
        seed=config.seed,
    )


def _wanted(plan: ServingPlan) -> int:
    if plan.config.serve.search:
        return MOST_OF_SEARCH
    return sum(point.requests + point.warmup for point in plan.points)


def _made(task: MakerTask) -> Made:
    given = TypeAdapter(MakerTask).dump_json(task)
    done = subprocess.run([sys.executable, "-m", MAKER], input=given, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"its maker ended with exit code {done.returncode}"
        raise BuildError(f"the prompts cannot be made: {why}")
    return Made.model_validate_json(done.stdout)


def _account(plan: ServingPlan, made: Made) -> dict[str, int]:
    if not made.prompts:
        return {}
    planned = sum(point.requests + point.warmup for point in plan.points)
    counts = {"texts_read": made.read, "texts_left_out": made.left_out}
    return counts | {"texts_sent_again": max(0, planned - len(made.prompts))}
