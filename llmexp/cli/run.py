"""The command line without a command: a run, a sweep, or Hydra's own questions (--cfg, --help, --info, completion)."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from omegaconf import Container, DictConfig, OmegaConf

from llmexp.cli.app import CONFIG, hydra_app
from llmexp.cli.arguments import run_parser
from llmexp.cli.check import check_key
from llmexp.cli.compose import Composer
from llmexp.cli.face import idle_line, idle_task, sweep
from llmexp.cli.jobs import plan_jobs
from llmexp.cli.overrides import accept, print_replaced
from llmexp.cli.words import composed, own_folder, search_path
from llmexp.errors import ConfigError
from llmexp.launch.display import enduring

if TYPE_CHECKING:
    from llmexp.cli.hydra_private import Hydra

# This is printed for a user who has typed nothing yet.
START = """\
llmexp finds the best configuration to pre-train, fine-tune or serve a language model on your hardware. You can:

  see whether it fits, without a GPU     llmexp plan model=7b method=Naive,QL task=finetune hardware=rtx4090
  find out which method is faster        llmexp model=tiny method=Naive,F,R
  find out how much load it can serve    llmexp experiment=serve_first
  look at what has run                   llmexp report

llmexp --help has the rest on one screen; llmexp doctor checks this machine first."""
# With --help this word asks for all of it.
EVERYTHING = "all"


def main(words: Sequence[str]) -> int:
    """Run what the words say, or show what they compose to; returns the exit code."""
    parser = run_parser()
    args = parser.parse_intermixed_args(words)
    if (args.package or args.resolve) and not args.cfg:
        raise ConfigError(
            f"{'--package' if args.package else '--resolve'} goes with --cfg: add --cfg job, or leave it out"
        )
    folder = own_folder(args)
    if not _asks(args):
        print(START)
        return 0
    with hydra_app(folder) as hydra:
        if args.shell_completion:
            os.environ["COMP_LINE"] = without_command(os.environ.get("COMP_LINE", ""))
            hydra.shell_completion(CONFIG, args.overrides)
            return 0
        if args.help:
            with_all = EVERYTHING in args.overrides
            args.overrides = [word for word in args.overrides if word != EVERYTHING]
        print_replaced(args.overrides)
        args.overrides = accept(hydra.config_loader, search_path(folder) + args.overrides)
        if args.help:
            args.overrides += [f"hydra/help={EVERYTHING}"] * with_all
            hydra.app_help(CONFIG, parser, args)
        elif args.info:
            hydra.show_info(args.info, CONFIG, args.overrides)
        elif args.cfg:
            _show_config(hydra, args)
        elif task := idle_task():
            print(f"llmexp: {idle_line(task)}", file=sys.stderr)
        else:
            with enduring():
                return sweep(hydra, args.overrides).code
    return 0


def _asks(args: argparse.Namespace) -> bool:
    """Tell whether there is anything to do: -m and --config-dir alone ask for nothing."""
    return any(bool(value) for name, value in vars(args).items() if name not in ("multirun", "config_dir"))


def without_command(line: str) -> str:
    """Remove the word plan, which takes the same overrides as a run, from a line to complete."""
    return re.sub(r"^(\S+\s+)plan\s+", r"\1", line)


def _show_config(hydra: Hydra, args: argparse.Namespace) -> None:
    """Print the configuration of every job, after all of them are checked."""
    if args.package and args.cfg == "job":
        check_key(args.package)
    master = composed(hydra, args.overrides)
    composer = Composer(hydra.config_loader, master, master.hydra.overrides.task)
    of_hydra = [override for override in args.overrides if override.lstrip("+").startswith("hydra")]
    for index, job in enumerate(plan_jobs(hydra.config_loader, master)):
        if index:
            print("---")
        if args.cfg == "job":
            _print(composer.config(job.overrides), args.package, args.resolve)
        else:
            hydra.show_cfg(CONFIG, of_hydra + list(job.overrides), args.cfg, args.package, args.resolve)


def _print(config: DictConfig, package: str | None, resolve: bool) -> None:
    """Print a job's configuration, or the part of it in an existing package, as Hydra does."""
    shown = OmegaConf.select(config, package) if package else config
    if not isinstance(shown, Container):
        print(shown)
        return
    if package:
        print(f"# @package {package}")
    print(OmegaConf.to_yaml(shown, resolve=resolve), end="")
