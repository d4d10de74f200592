"""What every family of microbenchmarks states is there."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch

from llmexp import conf, plugins
from llmexp.errors import ConfigError
from llmexp.launchers.micro.case import CasePlace
from llmexp.launchers.micro.worker import maker
from llmexp.micro.families import base
from llmexp.micro.families.memory import MEMORY
from llmexp.registry import FAMILIES, families, get_family

OWN = Path(base.__file__).parent


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_a_family_is_known_by_its_name_and_has_a_case_and_a_choice_of_its_points(family: base.Family) -> None:
    assert get_family(family.name) is family
    assert callable(maker(family))
    assert any((Path(root) / "micro" / f"{family.name}.yaml").is_file() for root in conf.__path__)
    assert {limit.rate for limit in family.limits} <= family.headings.keys()


def test_no_file_of_a_family_is_forgotten() -> None:
    assert {path.stem for path in OWN.glob("*.py")} - {"__init__", "base"} == FAMILIES.keys()


def test_limits_have_names_of_their_own() -> None:
    names = [limit.name for family in families() for limit in family.limits]
    assert len(names) == len(set(names))


def test_a_package_names_its_family_as_the_family_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    point = plugins.EntryPoint("mine", "llmexp.micro.families.memory:MEMORY", plugins.FAMILIES)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == plugins.FAMILIES else [])
    plugins.points.cache_clear()
    with pytest.raises(ConfigError, match=r"llmexp.families mine = .* is named memory; the two names have to be one"):
        get_family("mine")
    plugins.points.cache_clear()


def test_a_rank_finds_the_case_where_the_family_says(tmp_path: Path) -> None:
    point = base.MicroPoint(family="memory", kind="triad", sizes={"bytes": 64})
    case = maker(MEMORY)(point, CasePlace(torch.device("cpu"), 0, 1, 0, tmp_path))
    assert case.wrong() == ""
    assert maker(MEMORY) is import_module("llmexp.launchers.micro.memory").triad
