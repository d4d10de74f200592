from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs

CONF = Path(__file__).parents[2] / "conf"


@pytest.mark.parametrize(
    "words", [*itertools.permutations(["-m", "+method=R+F", "model=7b"]), ("--multirun", "++method=F+R", "+model=7b")]
)
def test_flags_and_plus_signs_may_stand_anywhere(words, llmexp):
    code, out, _ = llmexp("plan", "--json", "hardware=a800", *words)
    plan = json.loads(out)["plan"]
    assert code == 0
    assert (plan["method"], plan["config"]["model"]["name"], plan["dims"]["dp"]) == ("F+R", "7b", 8)


@pytest.mark.parametrize(
    "words", [("--cfg", "job", "+method=F"), ("+method=F", "--cfg", "job"), ("-m", "method=F", "-c", "job")]
)
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
    _, out, _ = llmexp(
        "plan", "--json", "measure.phases=false", "engine.options.gradient_clipping=1.0", "data.files=[a.txt,b.txt]"
    )
    config = json.loads(out)["plan"]["config"]
    assert config["measure"]["phases"] is False
    assert config["engine"]["options"] == {"gradient_clipping": 1.0}
    assert config["data"]["files"] == ["a.txt", "b.txt"]


def test_the_repeating_command_is_as_people_type_it(llmexp):
    _, out, _ = llmexp(
        "plan",
        "--json",
        "measure.profile_steps=3",
        "+method=R+F,Z2",
        "budget.device_hours=9",
        "budget.when_over=trim",
        "-m",
    )
    commands = [json.loads(line)["plan"]["rerun_command"] for line in out.splitlines()]
    assert commands == [f"python -m llmexp measure.profile_steps=3 method={method}" for method in ("R+F", "Z2")]


def test_options_from_a_folder_of_ones_own(llmexp, here: Path):
    (here / "mine" / "model").mkdir(parents=True)
    (here / "mine" / "model" / "small.yaml").write_text("defaults: [tiny]\nname: small\nnum_layers: 2\n")
    code, out, _ = llmexp("plan", "--json", "model=small,tiny", "--config-dir", "mine")
    assert code == 0
    small, tiny = (json.loads(line)["plan"] for line in out.splitlines())
    assert (small["config"]["model"]["num_layers"], tiny["config"]["model"]["num_layers"]) == (2, 4)
    assert small["rerun_command"] == f"python -m llmexp 'hydra.searchpath=[file://{here}/mine]' model=small"


@pytest.mark.parametrize(
    ("file", "known"), [("model/tiny.yaml", "conf/model/tiny.yaml"), ("config.yaml", "conf/config.yaml")]
)
def test_a_file_of_ones_own_with_the_name_of_another_is_refused(file, known, llmexp, here: Path):
    (here / "mine" / "model").mkdir(parents=True)
    (here / "mine" / file).write_text("name: mine\n")
    code, out, err = llmexp("plan", "model=tiny", "--config-dir", "mine")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{here}/mine/{file} has the name of " in err
    assert f"{known}, which would be read in its place: rename it" in err


def test_the_folder_of_llmexp_itself_may_be_named(llmexp):
    code, _, err = llmexp("plan", "model=tiny", "--config-dir", str(CONF))
    assert (code, err) == (0, "")


def test_help_lists_options_and_groups_of_ones_own(llmexp, here: Path):
    for name in ("model/small.yaml", "fruit/apple.yaml"):
        (here / "mine" / name).parent.mkdir(parents=True)
        (here / "mine" / name).write_text("defaults: []\n")
    _, out, _ = llmexp("--config-dir", "mine", "--help", "all")
    assert "fruit: apple" in out
    assert "qwen3-8b, qwen3-next-80b-a3b, small, tiny" in out
    assert "did you mean model=small?" in llmexp("--config-dir", "mine", "small")[2]


def test_a_run_notes_where_its_files_came_from(llmexp, runner, here: Path):
    (here / "mine" / "model").mkdir(parents=True)
    (here / "mine" / "model" / "small.yaml").write_text("defaults: [tiny]\nname: small\n")
    llmexp("model=small", "tracking=none", "--config-dir", "mine")
    (run,) = find_runs(here / "outputs")
    assert run.result().command == f"python -m llmexp 'hydra.searchpath=[file://{here}/mine]' model=small tracking=none"


def test_help_explains_every_group_and_atom(llmexp):
    from llmexp.method import ATOMS

    code, out, _ = llmexp("--help", "all")
    assert (code, out) == llmexp("help", "all")[:2]
    groups = [path.name for path in CONF.iterdir() if path.is_dir() and not path.name.startswith(("_", "hydra"))]
    assert code == 0
    for word in [*groups, *ATOMS]:
        assert f"\n  {word} " in out


def test_help_is_one_screen_and_names_every_group_and_atom(llmexp):
    from llmexp.method import ATOMS

    code, out, _ = llmexp("--help")
    assert code == 0
    lines = out.rstrip().splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 110
    named = set(re.findall(r"[\w-]+", out))
    groups = {path.name for path in CONF.iterdir() if path.is_dir()}
    assert named >= set(ATOMS) | groups - {"__pycache__", "hydra"}


@pytest.mark.parametrize("words", [(), ("all",)])
def test_help_names_every_command(words, llmexp):
    from llmexp.cli.arguments import COMMAND_NAMES

    _, out, _ = llmexp("--help", *words)
    named = {name for words in re.findall(r"^  llmexp ([a-z|-]+)", out, re.MULTILINE) for name in words.split("|")}
    assert named == set(COMMAND_NAMES)


@pytest.mark.parametrize("words", [(), ("-m",)])
def test_without_words_nothing_is_measured_and_how_to_start_is_said(words, llmexp, runner, here: Path):
    code, out, err = llmexp(*words)
    assert (code, err) == (0, "")
    commands = re.findall(r"  llmexp (.+)", out)
    assert len(commands) == 4
    for command in commands:
        words = command.removeprefix("plan ").split()
        assert words == ["report"] or llmexp("plan", *words)[0] == 0
    assert runner.ran == []
    assert list(here.iterdir()) == []


def test_the_defaults_alone_can_be_repeated(llmexp):
    _, out, _ = llmexp("plan", "--json")
    first = json.loads(out)["plan"]
    assert first["rerun_command"] == "python -m llmexp method=Naive"
    assert json.loads(llmexp("plan", "--json", "method=Naive")[1])["plan"]["id"] == first["id"]


@pytest.mark.parametrize(
    "words",
    [("model=7b", "plan", "--json"), ("-m", "model=7b", "plan", "--json"), ("-m", "plan", "--json", "model=7b")],
)
def test_a_command_may_come_after_overrides(words, llmexp):
    code, out, _ = llmexp(*words)
    assert (code, json.loads(out)["plan"]["config"]["model"]["name"]) == (0, "7b")


def test_help_is_a_word_too(llmexp, capfd):
    assert llmexp("help") == llmexp("--help")
    with pytest.raises(SystemExit, match="0"):
        llmexp("help", "report")
    assert "--largest-batch" in capfd.readouterr().out


def test_whole_numbers_may_be_typed_as_floats(llmexp):
    _, out, _ = llmexp("plan", "--json", "hardware.memory_bytes=16e9", "measure.steps=1e1")
    config = json.loads(out)["plan"]["config"]
    assert (config["hardware"]["memory_bytes"], config["measure"]["steps"]) == (16_000_000_000, 10)


def test_of_several_tasks_of_srun_on_a_node_one_measures(llmexp, tmp_path, monkeypatch):
    """`srun --ntasks-per-node=8` starts eight; each would start eight ranks."""
    monkeypatch.setenv("SLURM_LOCALID", "3")
    code, _, err = llmexp("method=Naive", "model=tiny", "hardware=cpu", "measure=smoke")
    assert code == 0
    assert "task 3 of this node leaves the run to task 0" in err
    assert not (tmp_path / "outputs").exists()
