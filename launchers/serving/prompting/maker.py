"""The program that makes tokens of texts, and finds the words of a tokenizer; source.py starts it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmexp.errors import ConfigError
from llmexp.launchers.data.corpus import hf_dataset
from llmexp.launchers.data.tokenizers import OfTransformers, Tokenizer, tokenizer
from llmexp.launchers.serving.prompting.source import Alphabet, Made, MakerTask, TextPrompt
from llmexp.serving.config.load import PromptTexts
from llmexp.serving.plan.prompt_texts import KEY, RecordedPrompts, is_file_of_records, recorded, records_of

# How the vocabularies of byte-level tokenizers and of SentencePiece write a blank.
BLANKS = ("\u0120", "\u2581")
# With fewer whole words prompts would hardly differ.
FEWEST_WORDS = 32
TRIALS, TRIAL_WORDS = 20, 40


def make(task: MakerTask) -> Made:
    """Return what is asked for; raises ConfigError."""
    chosen = tokenizer(task.tokenizer)
    if chosen.size > task.vocab_size:
        raise ConfigError(f"{_named(task)} has {chosen.size} tokens, but the model's vocabulary only {task.vocab_size}")
    alphabet = alphabet_of(chosen, task.vocab_size) if task.is_own and isinstance(chosen, OfTransformers) else None
    made = Made(alphabet=alphabet)
    if task.texts:
        _add_texts(made, task, task.texts, chosen)
    return made


def alphabet_of(chosen: OfTransformers, vocab_size: int) -> Alphabet:
    """Return the whole words of a tokenizer, each of which a text of such words gives back as one token."""
    loaded = chosen.loaded
    begin = list(loaded("").input_ids)
    found = dict(_words(loaded))
    for strips in (False, True):
        alphabet = Alphabet(begin=begin, words=found, strips=strips, vocab_size=vocab_size)
        if len(found) >= FEWEST_WORDS and _gives_back(alphabet, loaded):
            return alphabet
    return Alphabet(begin=begin, words={}, vocab_size=vocab_size)


def _words(loaded: Any) -> Iterator[tuple[int, str]]:
    """Yield the tokens that are a blank and ASCII letters, and that are found behind another word."""
    special = set(loaded.all_special_ids)
    names = ((token, loaded.convert_ids_to_tokens(token)) for token in range(len(loaded)) if token not in special)
    written = [
        (token, f" {name[1:]}")
        for token, name in names
        if name and name[0] in BLANKS and name[1:].isascii() and name[1:].isalpha()
    ]
    alone = len(loaded("a", add_special_tokens=False).input_ids)
    for token, text in written:
        behind = loaded(f"a{text}", add_special_tokens=False).input_ids[alone:]
        if behind == [token]:
            yield token, text


def _gives_back(alphabet: Alphabet, loaded: Any) -> bool:
    draw, tokens = random.Random(0), list(alphabet.words)
    for _ in range(TRIALS):
        ids = [*alphabet.begin, *draw.choices(tokens, k=TRIAL_WORDS)]
        if list(loaded(alphabet.text_of(ids)).input_ids) != ids:
            return False
    return True


def _add_texts(made: Made, task: MakerTask, texts: PromptTexts, chosen: Tokenizer) -> None:
    """Add prompts in an order that the seed fixes, until there are enough; raises ConfigError where none fits."""
    records = list(_records(texts))
    random.Random(task.seed).shuffle(records)
    for one in records:
        if len(made.prompts) == task.wanted:
            break
        made.read += 1
        prompt = prompt_of(one, chosen)
        output = prompt.answer_tokens if task.output_tokens is None else task.output_tokens
        if output and prompt.ids and len(prompt.ids) + output <= task.max_tokens:
            made.prompts.append(prompt)
        else:
            made.left_out += 1
    if not made.prompts:
        raise ConfigError(
            f"{KEY}={texts.path}: none of {made.read} prompts fits with its output into {task.max_tokens} tokens "
            "(serve.texts.max_tokens, model.max_positions)"
        )


def _records(texts: PromptTexts) -> Iterator[RecordedPrompts]:
    path = Path(texts.path).expanduser()
    if is_file_of_records(path):
        yield from records_of(path, texts.field)
        return
    for row, record in enumerate(hf_dataset(str(path) if path.exists() else texts.path, texts.split)):
        try:
            yield recorded(record, texts.field)
        except ValueError as error:
            raise ConfigError(f"{KEY}={texts.path}, row {row} of split {texts.split}: {error}") from None


def prompt_of(one: RecordedPrompts, chosen: Tokenizer) -> TextPrompt:
    """Return a record's text with the tokens that a server makes of it, those that begin a text among them."""
    text = one.prompt if isinstance(one.prompt, str) else _written(one, chosen)
    answer = len(chosen.encode(one.answer)) if one.answer else 0
    if isinstance(chosen, OfTransformers):
        text = _without_begin(text, chosen)
        return TextPrompt(ids=list(chosen.loaded(text).input_ids), text=text, answer_tokens=answer)
    return TextPrompt(ids=chosen.encode(text), text=text, answer_tokens=answer)


def _written(one: RecordedPrompts, chosen: Tokenizer) -> str:
    """Write turns by the tokenizer's template, else each below the name of its role."""
    assert not isinstance(one.prompt, str)
    if chosen.template:
        return chosen.template(one.prompt, answer_begins=True)
    return "".join(f"{role}:\n{content}\n" for role, content in one.prompt) + "assistant:\n"


def _without_begin(text: str, chosen: OfTransformers) -> str:
    """Leave out the token that begins a text where a template has written it and the tokenizer adds it too."""
    begin = chosen.loaded.bos_token
    return text.removeprefix(begin) if begin and chosen.begin else text


def _named(task: MakerTask) -> str:
    own = task.is_own and not (task.texts and task.texts.tokenizer)
    return f"the tokenizer of {task.tokenizer}" if own else f"serve.texts.tokenizer={task.tokenizer}"


def main() -> None:
    """Answer on standard output; bad input ends with one line."""
    answer = sys.stdout
    # What libraries print is no part of the answer.
    sys.stdout = sys.stderr
    try:
        made = make(MakerTask.model_validate_json(sys.stdin.buffer.read()))
    except (ConfigError, OSError) as error:
        sys.exit(" ".join(str(error).split()))
    answer.write(made.model_dump_json())


if __name__ == "__main__":
    main()
