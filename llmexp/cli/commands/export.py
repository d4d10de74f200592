"""The command llmexp export writes runs into one file for another machine."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.bundle.export import Contents, export
from llmexp.cli.arguments import Parser, add_paths, command_parser, runs_in


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "export",
        "Packs runs' records into one file, which report, compare, reproduce and llmexp.load read on another machine.",
    )
    add_paths(parser)
    parser.add_argument("--into", type=Path, required=True, metavar="FILE", help="a new .zip, .tar.gz or .tgz")
    parser.add_argument(
        "--anonymous", action="store_true", help="made-up names for hosts, users, paths, addresses and serial numbers"
    )
    parser.add_argument("--logs", action="store_true", help="with what the ranks printed")
    parser.add_argument("--traces", action="store_true", help="with the profiler's traces")
    return parser


def main(args: Namespace) -> int:
    """Write the bundle and say what is in it."""
    runs = runs_in(args.paths)
    files = export(runs, args.into, Contents(args.logs, args.traces, args.anonymous))
    print(f"{args.into}: {len(runs)} run{'s' * (len(runs) > 1)}, {files} files, {args.into.stat().st_size:,} bytes")
    if args.anonymous:
        print("names that you gave to models, sweeps, data or files may still identify you: read through it")
    return 0
