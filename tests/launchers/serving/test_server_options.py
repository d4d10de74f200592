"""Knobs are options that a server really has."""

from __future__ import annotations

from inspect import signature

import pytest

from llmexp.launchers.serving.engines.transformers import ENGINE as TRANSFORMERS


@pytest.mark.parametrize("knob", sorted(TRANSFORMERS.knobs))
def test_a_knob_of_transformers_is_an_option_of_its_server(knob: str) -> None:
    from transformers.cli.serve import Serve

    flag = TRANSFORMERS.knobs[knob](True)[0].removeprefix("--").replace("-", "_")
    assert flag in signature(Serve.__init__).parameters
