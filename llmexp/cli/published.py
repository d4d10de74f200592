"""What `llmexp report <reference>` shows: its tables and figures that runs answer, in its layout."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from llmexp.answers.tables import tables_filled
from llmexp.answers.versioned import line
from llmexp.cli.arguments import OUTPUTS, refuse_flags, runs_in
from llmexp.cli.pages import write_page
from llmexp.errors import ConfigError
from llmexp.report.references.page import views_page
from llmexp.report.references.reference import Reference
from llmexp.report.references.texts import TEXTS, missing_lines, print_views, publish_views
from llmexp.report.references.view import View
from llmexp.report.screen import console, write
from llmexp.report.table import Report, build_report

_NOT_HERE = ("largest_batch", "sort", "training_budget", "explain", "figure", "style", "setup", "claims", "loss")


def show_published(reference: Reference, args: Namespace, words: Sequence[str]) -> int:
    """Print or write the tables. Raises ConfigError where there is nothing to show, or for flags of other reports."""
    refuse_flags(args, _NOT_HERE, f"llmexp report {reference.name}, which takes --format, --html, …")
    _refuse_numbers(reference, words)
    names = [name for word in words if (name := reference.view_named(word))]
    report = _report(reference, [Path(word) for word in words if not reference.view_named(word)], bool(names))
    views = _views(reference, report, names)
    if args.missing:
        print(*(missing_lines(views) or ["# every cell has a run"]), sep="\n")
        return 0
    if args.into:
        print(*publish_views(views, args.into / reference.name), sep="\n")
    elif args.format == "json":
        print(line(tables_filled(reference, views, report.unreadable)))
    elif args.format != "terminal":
        print(TEXTS[args.format](views), end="")
    elif not (args.html or args.open):
        print_views(views, reference.name)
        for reason in report.unreadable:
            write(console(), f"unreadable: {reason}")
    if args.html or args.open:
        text = views_page(views, report.unreadable, reference.heading)
        write_page(text, f"{len(views)} tables", args.html, args.open)
    return 0


def _refuse_numbers(reference: Reference, words: Sequence[str]) -> None:
    """Raise ConfigError for a number alone, which may be that of a table or of a figure."""
    for word in words:
        if word.isdigit() and not Path(word).exists():
            meant = " or ".join(found for kind in ("table", "fig") if (found := reference.view_named(f"{kind}{word}")))
            said = f"write {meant}" if meant else f"{reference.title} has no such table or figure"
            raise ConfigError(f"report {reference.name} {word}: {said}")


def _report(reference: Reference, folders: Sequence[Path], is_named: bool) -> Report:
    """Read the runs; a table that was named is shown without any, as it was published."""
    if not folders and not Path(OUTPUTS).exists():
        if is_named:
            return Report(())
        raise ConfigError(
            f"there are no runs in {OUTPUTS} to show beside {reference.title}: {reference.first_runs}; llmexp report "
            f"{reference.name} {reference.example} shows {reference.title}'s own"
        )
    return build_report(runs_in(folders or [Path(OUTPUTS)]))


def _views(reference: Reference, report: Report, names: Sequence[str]) -> list[View]:
    """Return the views in the reference's order: of the named tables, or of all that runs answer."""
    found = [view for section in report.sections for view in reference.beside(section).views(names)]
    found += reference.of_all_runs(report.rows, names)
    wanted = [view for view in found if view.name in names] if names else found
    shown = {view.name for view in wanted}
    wanted += [reference.as_published(name) for name in dict.fromkeys(names) if name not in shown]
    if not wanted:
        raise ConfigError(
            f"none of these {len(report.rows)} runs answers a table of {reference.title}: name one to see "
            f"{reference.title}'s own, as in llmexp report {reference.name} {reference.example}, of "
            f"{', '.join(reference.view_names)}"
        )
    return sorted(wanted, key=lambda view: reference.view_names.index(view.name))
