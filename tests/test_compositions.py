"""What tests/compositions.py remembers is what Hydra composes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from compositions import OWN
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.types import RunMode
from omegaconf import OmegaConf

from llmexp.cli import resolvers
from llmexp.cli.app import CONFIG, hydra_app

WORDS = [
    "hardware=h200 model=7b seed=3",
    "hardware=h200 model=7b seed=4 batch.micro=2",
    "experiment=paper_table03",
    "",
    "+model@other=7b",
    "~optimizer",
]


def composed(*words: str, mode: RunMode = RunMode.MULTIRUN) -> str:
    with hydra_app() as hydra:
        return OmegaConf.to_yaml(hydra.compose_config(CONFIG, list(words), mode))


@pytest.mark.parametrize("words", WORDS)
def test_it_is_what_hydra_composes_without_it(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = composed(*words.split()), composed(*words.split())
    monkeypatch.setattr("compositions.OWN", set())
    assert first == again == composed(*words.split())


def test_the_machine_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cpu", "a800", "cpu"):
        monkeypatch.setattr(resolvers, "detect", lambda name=name: SimpleNamespace(hardware=name))
        assert f"\n  name: {name}\n" in composed().partition("\nhardware:")[2][:200]


def test_who_changes_a_composition_changes_no_other() -> None:
    with hydra_app() as hydra:
        one = hydra.compose_config(CONFIG, ["model=7b"], RunMode.MULTIRUN)
        one.model.num_layers = 1
        assert hydra.compose_config(CONFIG, ["model=7b"], RunMode.MULTIRUN).model.num_layers == 32


def test_a_folder_of_ones_own_is_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    file = tmp_path / "model" / "mine.yaml"
    for layers in (3, 4):
        file.write_text(f"defaults: [7b]\nnum_layers: {layers}\n")
        with hydra_app(tmp_path) as hydra:
            words = [f"hydra.searchpath=[file://{tmp_path}]", "model=mine"]
            assert hydra.compose_config(CONFIG, words, RunMode.MULTIRUN).model.num_layers == layers


def test_it_stands_in_for_hydras_functions_and_its_sources_are_those_of_llmexp() -> None:
    stand_ins = (config_loader_impl.create_defaults_list, ConfigLoaderImpl._compose_config_from_defaults_list)
    assert {each.__module__ for each in stand_ins} == {"compositions"}
    with hydra_app() as hydra:
        assert {f"{each.scheme()}://{each.path}" for each in hydra.config_loader.get_sources()} == OWN
