"""What the README and docs/ tell people to type is planned, parsed or looked up.

So no command there is one that llmexp does not take.
"""

from __future__ import annotations

import json
import re
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from documents import PAGES, ROOT, Command, commands, files, name, quotations, spans
from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig

from llmexp.__main__ import main
from llmexp.cli.advised import asked_of
from llmexp.cli.app import CONFIG, hydra_app
from llmexp.cli.arguments import COMMAND_NAMES, run_parser
from llmexp.cli.commands import command as module_of
from llmexp.cli.commands import command_in
from llmexp.cli.commands.search import sweeper_words
from llmexp.cli.compose import Composer
from llmexp.cli.jobs import answers, choices_of, expand, plan_of, words_of
from llmexp.cli.overrides import accept
from llmexp.cli.run import EVERYTHING
from llmexp.cli.search import search_setup
from llmexp.errors import ConfigError
from llmexp.launch.detect import Detected
from llmexp.schema import RunConfig

SHAPE = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
    "model_type": "llama",
}
RECORD = {"instruction": "Add the numbers.", "input": "1 2", "output": "3"}
# What the pages call a program, a text or records of the reader's own.
OWN_FILES = ("train.py", "sft.py", "corpus/a.txt")
# What the pages name of the checkout.
PEERS = [path.relative_to(ROOT) for path in (ROOT / "benchmarks" / "peers").glob("*_7b.py")]
OWN_RECORDS = ("mine.jsonl", "a.jsonl")
OWN_KEY = re.compile(rf"\+?({'|'.join(RunConfig.model_fields)})(\.[.\w]+)?=")

SHOWN_FILES = {place: text for page in PAGES for place, text in files(page).items()}
TYPED = {command: page for page in reversed(PAGES) for command in commands(page)}


@pytest.fixture(scope="module", autouse=True)
def _two_cpu_ranks() -> Iterator[None]:
    """Let every machine plan the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llmexp.cli.resolvers.detect", lambda: Detected("cpu", "cpu", "", 2, None))
        yield


@pytest.fixture(scope="module")
def composed() -> tuple[ConfigLoader, DictConfig, Composer]:
    """conf/ alone, composed once for all commands."""
    with hydra_app() as hydra:
        master = hydra.compose_config(CONFIG, [], RunMode.MULTIRUN)
        return hydra.config_loader, master, Composer(hydra.config_loader, master, [])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pages' readers have in their folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("llmexp.launch.run.run_one", _started)
    header = json.dumps({"a": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}).encode()
    _write(tmp_path / "mine" / "config.json", json.dumps(SHAPE | {"architectures": ["LlamaForCausalLM"]}))
    _write(tmp_path / "mine" / "tokenizer.json", "{}")
    (tmp_path / "mine" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))
    for own in OWN_FILES:
        _write(tmp_path / own, "")
    for peer in PEERS:
        _write(tmp_path / peer, (ROOT / peer).read_text())
    for own in OWN_RECORDS:
        _write(tmp_path / own, json.dumps(RECORD) + "\n")
    for place, text in SHOWN_FILES.items():
        _write(tmp_path / place, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _started(*_: Any) -> None:
    pytest.fail("a command that the documents show as refused was started")


def of_llmexp(command: Command) -> tuple[str, ...] | None:
    words = command.after("python", "-m", "llmexp")
    return command.after("llmexp") if words is None and command.words[:1] == ("llmexp",) else words


def is_shown(command: Command) -> bool:
    """Tell whether the page shows what it prints, without anything being measured."""
    words = of_llmexp(command) or ()
    return bool(command.output) and (words[:1] in (("plan",), ("advise",)) or command.output.startswith("llmexp: "))


RUNS = [command for command in TYPED if of_llmexp(command) and not is_shown(command)]
SHOWN = [command for command in TYPED if is_shown(command)]


def ids(found: Sequence[Command]) -> list[str]:
    return [f"{name(TYPED[command])}: {command}" for command in found]


def test_the_documents_have_commands_of_every_kind() -> None:
    named = {(of_llmexp(command) or ("",))[0] for command in TYPED}
    assert set(COMMAND_NAMES) <= named
    assert len([command for command in RUNS if command_in(of_llmexp(command) or ()) is None]) > 40
    assert len(SHOWN) > 4


@pytest.mark.parametrize("command", RUNS, ids=ids(RUNS))
def test_llmexp_takes_it(command: Command, composed) -> None:
    words = of_llmexp(command) or ()
    found = command_in(words)
    if found is None:
        args = run_parser().parse_intermixed_args(words)
        args.overrides = [word for word in args.overrides if not (args.help and word == EVERYTHING)]
        plan(args, composed)
    elif len(words) > 1:  # alone it may be the command's name
        args = module_of(found[0]).parser().parse_intermixed_args(found[1])
        if found[0] == "advise":
            asked_of(args)
        if found[0] == "search":
            plan_search(args)
        elif getattr(args, "overrides", []):
            plan(args, composed)


def plan(args: Namespace, composed: tuple[ConfigLoader, DictConfig, Composer]) -> None:
    """Plan its runs; of an experiment, which tests/conf plans whole, the first and the last, or all of a chain."""
    loader, master, composer = composed
    if args.config_dir is None and not any("experiment=" in word or "hydra" in word for word in args.overrides):
        for run in expand(loader, accept(loader, args.overrides), []):
            plan_of(composer.container(run), words_of(loader, master.hydra, run))
        return
    with hydra_app(args.config_dir and Path(args.config_dir).resolve()) as hydra:
        master = hydra.compose_config(CONFIG, accept(hydra.config_loader, args.overrides), RunMode.MULTIRUN)
        choices = choices_of(hydra.config_loader, master)
        # A run that starts from another one is planned with it.
        chained = any("@" in word for words in choices for word in words)
        some = choices if chained else choices[:: max(1, len(choices) - 1)]
        for _, found in answers(hydra.config_loader, master, some):
            if isinstance(found, ConfigError):
                raise found


def plan_search(args: Namespace) -> None:
    """Plan a search's choices and the ends of its intervals."""
    with hydra_app() as hydra:
        words = accept(hydra.config_loader, [*args.overrides, *sweeper_words(args)])
        master = hydra.compose_config(CONFIG, words, RunMode.MULTIRUN)
        assert search_setup(hydra.config_loader, master, master.hydra.sweeper).space


@pytest.mark.parametrize("command", SHOWN, ids=ids(SHOWN))
def test_it_prints_what_the_page_shows(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(of_llmexp(command))
    out, err = capsys.readouterr()
    assert code == (2 if command.output.startswith("llmexp: ") else 0)
    printed = _spaced(out + err)
    for part in command.output.split("…"):
        assert _spaced(part) in printed


def _spaced(text: str) -> str:
    """As words alone: the pages break long lines."""
    return " ".join(text.split())


def test_the_keys_in_backticks_are_llmexps(composed) -> None:
    told = [(page, [word.strip("'") for word in span.split()]) for page in PAGES for span in spans(page)]
    wrong = []
    for page, words in told:
        if all(OWN_KEY.match(word) and "…" not in word for word in words):
            try:
                accept(composed[0], words)
            except (ConfigError, HydraException) as error:
                wrong.append(f"{name(page)}: {words}: {error}")
    assert wrong == []


def test_make_has_its_targets_and_variables() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"\$\(?([A-Z_]+)\b", makefile))
    asked = [word for command in TYPED for word in command.after("make") or () if command.words[0] == "make"]
    assert {word for word in asked if "=" not in word} - targets == set()
    assert {word.partition("=")[0] for word in asked if "=" in word} - variables == set()
    assert len(asked) > 10


def test_modules_and_their_words_are_there() -> None:
    found = [
        command
        for command in TYPED
        if command.words[:2] == ("python", "-m") and command.words[2] not in ("llmexp", "venv")
    ]
    for command in found:
        # Ranks' programs lie beside llmexp, in which they are imported.
        place = ROOT.joinpath(*command.words[2].removeprefix("llmexp.launchers.").split("."))
        beside = ROOT.joinpath("launchers", *command.words[2].removeprefix("llmexp.launchers.").split("."))
        assert place.is_dir() or any(one.with_suffix(".py").is_file() for one in (place, beside)), str(command)
        if command.words[2] == "benchmarks" and len(command.words) > 3:
            assert f'"{command.words[3]}"' in (ROOT / "benchmarks" / "__main__.py").read_text()
    assert found


def test_pip_is_asked_for_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {
        extra
        for command in TYPED
        for word in command.after("pip", "install") or ()
        for extra in re.findall(r"^\.\[(.*)\]$", word)
    }
    assert {each for extra in asked for each in extra.split(",")} <= set(extras)
    assert asked


def test_what_a_page_quotes_stands_in_the_source() -> None:
    found = [quotation for page in PAGES for quotation in quotations(page)]
    for source, text in found:
        lines = {line.strip() for line in source.read_text().splitlines()}
        assert {line.strip() for line in text.splitlines()} - lines == set(), source
    assert found
