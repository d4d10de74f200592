"""The command llmexp schema shows the form of what other commands print as JSON."""

from __future__ import annotations

from argparse import Namespace

from llmexp.answers.schemas import ANSWERS, json_schema
from llmexp.cli.arguments import Parser, command_parser


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "schema", "Prints the JSON Schema of what a command prints with --json; without a name, lists the names."
    )
    parser.add_argument("name", nargs="?", help=", ".join(ANSWERS))
    return parser


def main(args: Namespace) -> int:
    """Print the schema, or the names of all."""
    print(json_schema(args.name) if args.name else "\n".join(ANSWERS))
    return 0
