"""The command llmexp engines shows what each engine can do."""

from __future__ import annotations

from argparse import Namespace

from llmexp.cli.arguments import Parser, add_overrides, command_parser
from llmexp.cli.capabilities import markdown, matrix, print_matrix
from llmexp.cli.overrides import as_typed
from llmexp.cli.words import answers_of


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "engines",
        "Shows what each engine can do, and why it cannot do the rest, for experiment=capabilities. Starts nothing.",
    )
    add_overrides(parser)
    parser.add_argument("--format", choices=("terminal", "markdown"), default="terminal")
    return parser


def main(args: Namespace) -> int:
    """Print the matrix."""
    words = dict(word.partition("=")[::2] for word in as_typed(args.overrides))
    if words.get("hardware", "cpu") != "cpu" and "precision" not in words:
        # The experiment's own is for a CPU; on a GPU a run without the word takes this one.
        args.overrides.append("precision=auto")
    args.overrides.insert(0, "+experiment=capabilities")
    found = matrix(answers_of(args), args.overrides)
    if args.format == "markdown":
        print(markdown(found), end="")
    else:
        print_matrix(found)
    return 0
