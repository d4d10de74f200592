"""Short forms of a job's overrides, as a person types them.

A place replaces the options that it stands for, and interpolations lose Hydra's escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.errors import HydraException

from llmexp.cli.places import spelled_out
from llmexp.errors import ConfigError

_ESCAPED = re.compile(r"\$\\\{([\w.]+)\\\}")
_TOKENIZERS = ("data.tokenizer=${model.path}", "text.tokenizer=${model.path}")


def typed(loader: ConfigLoader, words: Sequence[str]) -> list[str]:
    """Return the shortest words found that mean the same as these, without Hydra's plus signs."""
    found = list(words)
    for shorter in (_unescaped, _model_as_place, _data_as_place):
        found = next((each for each in shorter(found) if each != found and _mean_the_same(loader, each, found)), found)
    return found


def _unescaped(words: Sequence[str]) -> Iterator[list[str]]:
    yield [_ESCAPED.sub(r"${\1}", word) for word in words]


def _model_as_place(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words with a place as the model, first without the tokenizer that comes with it, then with it."""
    path = _value(words, "model.path")
    if "model=hf" in words and isinstance(path, str):
        implied = (f"model.path={_raw(words, 'model.path')}", "model.weights=pretrained")
        for left_out in ((*implied, *_TOKENIZERS), implied):
            yield [f"model={path}" if word == "model=hf" else word for word in words if word not in left_out]


def _data_as_place(words: Sequence[str]) -> Iterator[list[str]]:
    files = _value(words, "data.files")
    if "data=instructions" in words and isinstance(files, list) and len(files) == 1:
        left_out = f"data.files={_raw(words, 'data.files')}"
        yield [f"data={files[0]}" if word == "data=instructions" else word for word in words if word != left_out]


def _mean_the_same(loader: ConfigLoader, words: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether both mean the same; False for words that a person may not type."""
    try:
        return _settings(spelled_out(loader, words)) == _settings(spelled_out(loader, others))
    except (ConfigError, HydraException):
        return False


def _settings(words: Sequence[str]) -> dict[str, Any]:
    return {
        override.get_key_element(): _plain(override.value())
        for override in OverridesParser.create().parse_overrides(list(words))
    }


def _value(words: Sequence[str], key: str) -> Any:
    raw = _raw(words, key)
    return None if raw is None else _settings([f"{key}={raw}"])[key]


def _raw(words: Sequence[str], key: str) -> str | None:
    return next((value for name, _, value in (word.partition("=") for word in words) if name == key), None)


def _plain(value: Any) -> Any:
    """Return a value without the quotes that it needs in Hydra's grammar."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.text if isinstance(value, QuotedString) else value
