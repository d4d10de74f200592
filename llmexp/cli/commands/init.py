"""The command llmexp init asks five questions and writes an experiment file that plans."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from llmexp.cli.app import hydra_app
from llmexp.cli.arguments import Parser, command_parser
from llmexp.cli.experiment_file import SERVE, Draft, command, write_experiment
from llmexp.cli.words import jobs_of
from llmexp.errors import ConfigError, hint
from llmexp.method import Method
from llmexp.registry import engine_names

TASKS = ("pretrain", "finetune", SERVE)
EFFORTS = ("smoke", "quick", "paper")
_USUALLY_COMPARED = {"pretrain": "Naive,F,R", "finetune": "L,QL", SERVE: "transformers,vllm"}
_NAME = re.compile(r"[A-Za-z_]\w*")
_RATES = re.compile(r"(\d+(\.\d+)?|max)(,(\d+(\.\d+)?|max))*")


@dataclass(frozen=True)
class Question:
    """A question with the flag that answers it, what a bare return answers, and what refuses an answer."""

    flag: str
    text: str
    usual: str
    check: Callable[[str], None]

    def answer(self, given: str | None) -> str:
        """Return what the flag gives, else ask until an answer can be; raises ConfigError."""
        if given is not None:
            self.check(given)
            return given
        while True:
            try:
                said = input(f"{self.text} [{self.usual}] ").strip() or self.usual
                self.check(said)
            except EOFError:
                raise ConfigError(f"cannot ask '{self.text}' here: answer it with --{self.flag}") from None
            except ConfigError as error:
                print(error)
            else:
                return said


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "init", "Writes an experiment file for you. Asks five questions; flags can answer them too. Starts nothing."
    )
    parser.add_argument("--task", help=", ".join(TASKS))
    parser.add_argument("--model", help="an option such as 7b, a folder such as ./mine, or owner/name on the hub")
    parser.add_argument("--hardware", help="an option such as rtx4090; auto is this machine")
    parser.add_argument("--compare", help="methods such as Naive,F,R; to serve, engines such as transformers,vllm")
    parser.add_argument("--effort", help=f"{', '.join(EFFORTS)}; to serve, requests a second such as 1,4,max")
    parser.add_argument("--name", default="mine", help="the experiment's name; default mine")
    parser.add_argument("--config-dir", type=Path, default=Path("my/conf"), help="the folder; default my/conf")
    return parser


def main(args: Namespace) -> int:
    """Ask what no flag answers, plan the runs, and write the file."""
    if not _NAME.fullmatch(args.name):
        raise ConfigError(f"--name {args.name}: takes letters, digits and _, such as --name mine")
    draft = _draft(args)
    runs = len(jobs_of(Namespace(overrides=draft.words, config_dir=None)))
    path = write_experiment(draft, args.config_dir, args.name)
    print(f"wrote {path}: {runs} run{'s' * (runs > 1)}")
    for told, before in (("does it fit?", ["plan"]), ("measure", [])):
        print(f"  {told:<14}{shlex.join(command(args.config_dir, args.name, *before))}")
    return 0


def _draft(args: Namespace) -> Draft:
    with hydra_app() as hydra:
        options = {group: hydra.config_loader.get_group_options(group) for group in ("model", "hardware")}
    kind = Question("task", f"What is it for: {', '.join(TASKS)}?", TASKS[0], partial(_among, "task", TASKS))
    task = kind.answer(args.task)
    model, hardware, compared, effort = (
        question.answer(getattr(args, question.flag)) for question in _questions(task, options)
    )
    return Draft(task, model, hardware, tuple(compared.split(",")), effort)


def _questions(task: str, options: dict[str, list[str]]) -> Sequence[Question]:
    what = "engines" if task == SERVE else "methods"
    effort = (
        Question("effort", "At how many requests a second?", "1,4,max", _rates)
        if task == SERVE
        else Question("effort", f"How thoroughly: {', '.join(EFFORTS)}?", "quick", partial(_among, "effort", EFFORTS))
    )
    return [
        Question("model", "Which model?", "tiny", partial(_model, options["model"])),
        Question("hardware", "On which hardware?", "auto", partial(_among, "hardware", options["hardware"])),
        Question("compare", f"Which {what} should it compare?", _USUALLY_COMPARED[task], partial(_competing, task)),
        effort,
    ]


def _among(flag: str, choices: Iterable[str], said: str) -> None:
    if said not in choices:
        guess = hint(flag, said, choices)
        raise ConfigError(f"--{flag} '{said}' is unknown: {guess}choices are {', '.join(choices)}")


def _model(options: Sequence[str], said: str) -> None:
    if "/" not in said:
        _among("model", options, said)


def _competing(task: str, said: str) -> None:
    for name in said.split(","):
        if task == SERVE:
            _among("compare", engine_names(SERVE), name)
        else:
            Method.parse(name, task)


def _rates(said: str) -> None:
    if not _RATES.fullmatch(said):
        raise ConfigError(f"--effort '{said}': takes requests a second, or max for as many as it can, such as 1,4,max")
