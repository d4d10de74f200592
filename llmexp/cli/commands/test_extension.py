"""The command llmexp test-extension checks a package that extends llmexp."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path

from llmexp.cli.arguments import Parser, command_parser
from llmexp.cli.extension import checks
from llmexp.errors import in_one_line


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "test-extension",
        "Checks what an installed package adds, a line each: it loads, its files plan, its engines, atoms and metrics "
        "do what they say on a tiny model on this CPU. The exit code is 1 where a check fails.",
    )
    parser.add_argument("package", help="as pip names it")
    return parser


def main(args: Namespace) -> int:
    """Print each check as it ends; return 1 where one failed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="llmexp-test-extension-") as outputs:
        for check in checks(args.package, Path(outputs)):
            failed += bool(check.reason)
            print(
                f"FAILED  {check.name}: {in_one_line(check.reason)}" if check.reason else f"ok      {check.name}",
                flush=True,
            )
    return int(failed > 0)
