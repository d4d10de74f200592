"""The ranking of options as a page: the choice in words, the picture, and the tables with commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from llmexp.advice.losses import losses_known
from llmexp.advice.option import Option
from llmexp.advice.picture import pictures
from llmexp.advice.ranking import Ranking
from llmexp.answers.advised import NearMisfit, options_advised
from llmexp.cli.advice_table import cells_of, choice, headers_of, legend, own_words
from llmexp.cli.advised import Asked
from llmexp.record.digits import rounded
from llmexp.report.columns import Column, ReportTable
from llmexp.report.page.document import document, shown_table

_LEFT = ("#", "words", "fits", "most time", "changes")


def advice_page(ranking: Ranking, asked: Asked, overrides: Sequence[str]) -> str:
    """Return the page, which loads nothing; raises RecordError without jinja2."""
    said = list(choice(ranking))
    nearest = options_advised(ranking, said).nearest
    options = [*ranking.sure, *ranking.perhaps]
    groups = [[_table(ranking, options)], [_misfits(nearest)] * bool(nearest), [], [_commands(options)]]
    section = {
        "title": f"Options by {ranking.goal.name}: {ranking.goal.words}",
        "asked": _counts(ranking),
        "command": _command(asked, overrides),
        "answers": [line[:1].upper() + line[1:] for line in map(str.strip, [*said, *_losses(options)])],
        "charts": [chart.values for chart in pictures(ranking)],
        "matrices": [],
        "pictures": [],
        "setup": None,
        "provenance": [],  # the table's legend has what predictions go by
        "groups": [list(map(shown_table, group)) for group in groups],
    }
    return document([section], "llmexp advise")


def _command(asked: Asked, overrides: Sequence[str]) -> str:
    """Return the command line that asks the same."""
    training, samples = asked.goal.training, asked.global_batch
    flags = [
        *(["--for", f"{training.kind}={training.said}"] if training else []),
        *(["--global-batch", str(samples)] if samples else []),
        *["--plain"] * asked.plain,
    ]
    return shlex.join(["llmexp", "advise", *overrides, f"goal={asked.goal.name}", *flags])


def _losses(options: Sequence[Option]) -> list[str]:
    """Say what is known of how options that change the mathematics learn."""
    plan = options[0].plan
    changed = any(option.changes for option in options)
    return losses_known(Path(plan.config.sweep.outputs), plan) if changed else []


def _counts(ranking: Ranking) -> str:
    counts = {"fit": ranking.sure, "may fit and would be better": ranking.perhaps, "do not fit": ranking.misfits}
    return ", ".join(f"{len(options)} {words}" for words, options in counts.items() if options)


def _table(ranking: Ranking, options: Sequence[Option]) -> ReportTable:
    shared = _shared(options)
    rows = [
        [str(rank), own_words(option, shared), *cells_of(ranking.goal, option)]
        for rank, option in enumerate(options, 1)
    ]
    headers = ["#", "words", *headers_of(ranking.goal, options)]
    columns = [
        Column(header, cells, left=header in _LEFT)
        for header, cells in zip(headers, zip(*rows, strict=True), strict=True)
        if header and any(cells)
    ]
    said = f"words are added to those that all options share: {shlex.join(['llmexp', *_in_order(options[0], shared)])}"
    return ReportTable("All options", columns, (*[said] * bool(shared), *legend(options)), copied="words")


def _in_order(option: Option, words: Collection[str]) -> list[str]:
    return [word for word in option.plan.overrides if word in words]


def _shared(options: Sequence[Option]) -> set[str]:
    """Return the words of all options; a single one has words of its own alone."""
    return set.intersection(*(set(option.plan.overrides) for option in options)) if len(options) > 1 else set()


def _commands(options: Sequence[Option]) -> ReportTable:
    rows = [[str(rank), option.plan.rerun_command] for rank, option in enumerate(options, 1)]
    return ReportTable.of_rows("The command of each option", ["#", "command"], rows, copied="command")


def _misfits(nearest: Sequence[NearMisfit]) -> ReportTable:
    rows = [
        [one.reason, ", or ".join(one.fits_with), rounded(one.tokens_per_s), ", ".join(one.changes), one.command]
        for one in nearest
    ]
    headers = ["what is missing", "fits with", "tokens/s", "changes", "command"]
    return ReportTable.of_rows("What does not fit, the nearest first", headers, rows, ("tokens/s",), copied="command")
