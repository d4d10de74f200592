from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs


@pytest.mark.parametrize("words", [*itertools.permutations(["-m", "+method=R+F", "model=7b"]), ("--multirun", "++method=F+R", "+model=7b")])
def test_flags_and_plus_signs_may_stand_anywhere(words, llmexp):
    code, out, _ = llmexp("plan", "--json", "hardware=a800", *words)
    plan = json.loads(out)
    assert code == 0
    assert (plan["method"], plan["config"]["model"]["name"], plan["dims"]["dp"]) == ("F+R", "7b", 8)


@pytest.mark.parametrize("words", [("--cfg", "job", "+method=F"), ("+method=F", "--cfg", "job"), ("-m", "method=F", "-c", "job")])
def test_cfg_shows_the_composed_configuration(words, llmexp):
    code, out, err = llmexp(*words)
    assert (code, err) == (0, "")
    assert "method: F\n" in out
    assert "\nhydra:" not in out


def test_cfg_of_a_sweep_shows_every_run(llmexp):
    code, out, _ = llmexp("--cfg", "job", "experiment=first_run", "--package", "method")
    assert code == 0
    assert out.split("\n---\n") == ["Naive", "F", "R", "Z2", "Z3+O", "F+R+Z3\n"]


def test_keys_of_the_schema_that_no_yaml_names_can_be_set_plainly(llmexp, here: Path):
    for name in ("a.txt", "b.txt"):
        (here / name).write_text("text")
    _, out, _ = llmexp("plan", "--json", "measure.phases=false", "engine.options.gradient_clipping=1.0", "data.files=[a.txt,b.txt]")
    config = json.loads(out)["config"]
    assert config["measure"]["phases"] is False
    assert config["engine"]["options"] == {"gradient_clipping": 1.0}
    assert config["data"]["files"] == ["a.txt", "b.txt"]


def test_the_repeating_command_is_as_people_type_it(llmexp):
    _, out, _ = llmexp("plan", "--json", "measure.profile_steps=3", "+method=R+F,Z2", "budget.device_hours=9", "budget.when_over=trim", "-m")
    commands = [json.loads(line)["rerun_command"] for line in out.splitlines()]
    assert commands == [f"python -m llmexp measure.profile_steps=3 method={method}" for method in ("R+F", "Z2")]


def test_options_from_a_folder_of_ones_own(llmexp, here: Path):
    (here / "mine" / "model").mkdir(parents=True)
    (here / "mine" / "model" / "small.yaml").write_text("defaults: [tiny]\nname: small\nnum_layers: 2\n")
    code, out, _ = llmexp("plan", "--json", "model=small,tiny", "--config-dir", "mine")
    assert code == 0
    small, tiny = (json.loads(line) for line in out.splitlines())
    assert (small["config"]["model"]["num_layers"], tiny["config"]["model"]["num_layers"]) == (2, 4)
    assert small["rerun_command"] == f"python -m llmexp 'hydra.searchpath=[file://{here}/mine]' model=small"


def test_a_run_notes_where_its_files_came_from(llmexp, runner, here: Path):
    (here / "mine" / "model").mkdir(parents=True)
    (here / "mine" / "model" / "small.yaml").write_text("defaults: [tiny]\nname: small\n")
    llmexp("model=small", "tracking=none", "--config-dir", "mine")
    (run,) = find_runs(here / "outputs")
    assert run.result().command == f"python -m llmexp 'hydra.searchpath=[file://{here}/mine]' model=small tracking=none"


def test_help_explains_every_group_and_atom(llmexp):
    from llmexp.method import ATOMS

    code, out, _ = llmexp("--help")
    groups = [path.name for path in (Path(__file__).parents[2] / "conf").iterdir() if path.is_dir() and not path.name.startswith(("_", "hydra"))]
    assert code == 0
    for word in [*groups, *ATOMS]:
        assert f"\n  {word} " in out
