"""The table of number formats holds what torch, traces and configuration call them, and what they take."""

from __future__ import annotations

import pytest
import torch

from llmexp import dtypes, plugins
from llmexp.dtypes import FORMATS, by_trace, bytes_of, bytes_of_moment, format_of, of_moments, of_parameters, of_peaks
from llmexp.errors import ConfigError
from llmexp.measure.dtypes import torch_dtype

HELD = [name for name, row in FORMATS.items() if row.torch]


@pytest.mark.parametrize("name", HELD)
def test_a_format_takes_the_bytes_and_rounds_as_torch_does(name: str) -> None:
    found, row = torch_dtype(name), format_of(name)
    assert row.bytes == found.itemsize
    assert row.unit_roundoff in (0.0, torch.finfo(found).eps / 2)


def test_the_names_that_keys_take_and_their_order() -> None:
    assert of_parameters() == ("fp32", "bf16", "fp16")
    assert of_moments() == ("fp32", "bf16", "int8")
    assert of_peaks() == ("fp32", "tf32", "bf16", "fp16", "fp8")


def test_a_moment_of_8_bits_has_its_part_of_a_scale() -> None:
    assert (bytes_of("int8"), bytes_of_moment("int8"), bytes_of_moment("bf16")) == (1, 1 + 4 / 256, 2)


def test_traces_call_them_by_the_names_of_c() -> None:
    assert by_trace()["c10::BFloat16"] == "bf16"
    assert by_trace()["float"] == "fp32"
    assert by_trace()["c10::Float8_e5m2"] == "fp8"


def outside(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    point = plugins.EntryPoint(name, "llmexp.dtypes:FORMATS", plugins.DTYPES)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == plugins.DTYPES else [])
    plugins.points.cache_clear()


@pytest.mark.parametrize(
    ("name", "said"), [("bf16", "the name bf16 is taken"), ("fp64", "is a dict, not a NumberFormat")]
)
def test_what_a_package_calls_a_format_is_checked(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    outside(monkeypatch, name)
    with pytest.raises(ConfigError, match=said):
        dtypes.format_of("fp64")
    monkeypatch.undo()
    plugins.points.cache_clear()
