"""What `llmexp report paper` shows: the paper's tables and figures that runs answer, in its layout."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from llmexp.cli.arguments import OUTPUTS, runs_in
from llmexp.cli.pages import write_page
from llmexp.errors import ConfigError
from llmexp.report.page.paper import paper_page
from llmexp.report.paper.names import TITLES, experiment_of, name_of, place_of
from llmexp.report.paper.printed import printed
from llmexp.report.paper.texts import TEXTS, missing_lines, print_views, publish_views
from llmexp.report.paper.view import PaperView
from llmexp.report.screen import console, write
from llmexp.report.table import Report, build_report

_NOT_HERE = ("largest_batch", "figure", "setup", "claims")


def show_paper(args: Namespace, words: Sequence[Path | str]) -> int:
    """Print or write the tables. Raises ConfigError where there is nothing to show, or for flags of other reports."""
    for flag in _NOT_HERE:
        if getattr(args, flag):
            raise ConfigError(f"--{flag.replace('_', '-')} is not of llmexp report paper: it takes --format, --html, …")
    _refuse_numbers(words)
    names = [name for word in words if isinstance(word, str) and (name := name_of(word))]
    report = _report([Path(word) for word in words if isinstance(word, Path) or not name_of(word)], bool(names))
    views = _views(report, names)
    if args.missing:
        print(*(missing_lines(views) or ["# every cell has a run"]), sep="\n")
        return 0
    if args.into:
        print(*publish_views(views, args.into), sep="\n")
    elif args.format != "terminal":
        print(TEXTS[args.format](views), end="")
    elif not (args.html or args.open):
        print_views(views)
        for reason in report.unreadable:
            write(console(), f"unreadable: {reason}")
    if args.html or args.open:
        text = paper_page(views, report.unreadable, "Beside the paper, arXiv 2311.03687")
        write_page(text, f"{len(views)} tables", args.html, args.open)
    return 0


def _refuse_numbers(words: Sequence[Path | str]) -> None:
    """Raise ConfigError for a number alone, which may be that of a table or of a figure."""
    for word in map(str, words):
        if word.isdigit() and not Path(word).exists():
            meant = " or ".join(found for kind in ("table", "fig") if (found := name_of(f"{kind}{word}")))
            said = f"write {meant}" if meant else "the paper has no such table or figure"
            raise ConfigError(f"report paper {word}: {said}")


def _report(folders: Sequence[Path], is_named: bool) -> Report:
    """Read the runs; a table that was named is shown without any, as the paper prints it."""
    if not folders and not Path(OUTPUTS).exists():
        if is_named:
            return Report(())
        raise ConfigError(
            f"there are no runs in {OUTPUTS} to show beside the paper: python -m llmexp experiment="
            f"{experiment_of('table03')} makes those of table III; llmexp report paper table03 shows the paper's own"
        )
    return build_report(runs_in(folders or [Path(OUTPUTS)]))


def _views(report: Report, names: Sequence[str]) -> list[PaperView]:
    """Return the views in the paper's order: of the named tables, or of all that runs answer."""
    found = [view for section in report.sections for view in section.paper_views(names)]
    wanted = [view for view in found if view.name in names] if names else found
    shown = {view.name for view in wanted}
    wanted += [printed(name) for name in dict.fromkeys(names) if name not in shown]
    if not wanted:
        raise ConfigError(
            f"none of these {len(report.rows)} runs answers a table of the paper: name one to see the paper's own, "
            f"as in llmexp report paper table03, of {', '.join(TITLES)}"
        )
    return sorted(wanted, key=lambda view: place_of(view.name))
