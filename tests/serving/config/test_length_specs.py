from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from llmexp.schema.kinds import wrong_value
from llmexp.schema.section import Section
from llmexp.serving.config.lengths import OutputLengths, PromptLengths


class Holder(Section):
    """Stands for the section that has lengths."""

    prompt: PromptLengths
    output: OutputLengths = OutputLengths(tokens=1)


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        ({"tokens": 512}, "fixed", "512 tokens"),
        ({"tokens": 5e2}, "fixed", "500 tokens"),
        ({"tokens": [128, 1024]}, "uniform", "128 to 1024 tokens"),
        (
            {"tokens": 512, "variation": 0.8, "limits": [16, 2048]},
            "lognormal",
            "16 to 2048 tokens, lognormal around 512, variation 0.8",
        ),
        ({"tokens": "mine.txt"}, "listed", "lengths of mine.txt"),
    ],
)
def test_what_is_given_says_the_kind(words: dict[str, Any], kind: str, said: str) -> None:
    section = PromptLengths.model_validate(words)
    assert (section.kind, str(section)) == (kind, said)
    assert PromptLengths.model_validate(json.loads(section.model_dump_json())) == section
    assert section.inputs == (("mine.txt",) if kind == "listed" else ())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            {"tokens": 0},
            "prompt.tokens=0: must be a whole number of at least 1 or [least,most], both at least 1 or",
        ),
        ({"tokens": [5]}, "prompt.tokens=[5]: must be a whole number of at least 1 or [least,most]"),
        ({"tokens": [9, 5]}, "serve.prompt.tokens=[9,5]: the first is the least, then the most"),
        ({"tokens": 5, "variation": 0.0}, "prompt.variation=0.0: must be a number above 0, or null"),
        (
            {"tokens": 5, "variation": 1.0},
            "serve.prompt.variation=1 has no longest length: set serve.prompt.limits=[1,20",
        ),
        (
            {"tokens": [1, 5], "variation": 1.0, "limits": [1, 2]},
            "serve.prompt.variation=1 varies around a mean: set serve.prompt.tokens to a number, or leave it out",
        ),
        ({"tokens": "a.txt", "variation": 1.0}, "serve.prompt.variation=1 varies around a mean"),
        (
            {"tokens": 5, "limits": [1, 9]},
            "serve.prompt.limits=[1,9] cut a lognormal distribution: set serve",
        ),
        (
            {"tokens": 50, "variation": 1.0, "limits": [1, 9]},
            "serve.prompt.limits=[1,9] leave out the mean, serve",
        ),
        ({"tokens": 50, "variation": 1.0, "limits": [9, 1]}, "serve.prompt.limits=[9,1]: the first is the least"),
    ],
)
def test_what_makes_no_lengths_is_refused_in_one_line(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as found:
        Holder.model_validate({"prompt": words})
    line = wrong_value(Holder, found.value.errors()[0])
    assert line.startswith(said)
    assert ": write " not in line
    assert "\n" not in line


def test_outputs_call_themselves_by_their_own_key() -> None:
    with pytest.raises(ValidationError, match=r"serve\.output\.variation=2 has no longest length"):
        OutputLengths(tokens=4, variation=2.0)
