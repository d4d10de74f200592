"""Programs of engine=script in a report: their rows are told apart in few words, and compared by all of them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from matplotlib.text import Text

from llmexp.report.plots import draw_report
from llmexp.report.table import build_report
from llmexp.report.text import comma_separated
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.report.fairness import fairness
from llmexp.training.report.scaling_plot import draw_scaling

LONG = (
    "--data_dir=/a/folder/with/a/long/name/of/somebody/{} --batch_size 12 --block_size 1024 --max_iters 5000 "
    "--device=cpu --dtype=float32"
)


@pytest.fixture
def run(make_run, tmp_path: Path, write_samples):
    """A measured run of folder/train.py with these options."""

    def make(options: str, folder: str = "mine", speed: float = 100.0, **changes):
        program = tmp_path / "programs" / folder / "train.py"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()
        engine = {"name": "script", "launcher": "spawn", "options": {"command": f"{program} {options}".strip()}}
        made = make_run(metrics={"tokens_per_s": speed}, engine=engine, **{"parallelism__dp": 1} | changes)
        write_samples(made.repeat(0), 0, [(1.0, speed)] * 3)
        return made

    return make


def test_the_column_is_short_and_what_is_compared_is_whole(run):
    report = build_report([run(LONG.format("a")), run(LONG.format("b"), speed=200.0)])
    shown = {column.header: column.cells for column in report.sections[0].columns}
    assert shown["engine"] == (
        "script train.py --data_dir=/a/f…me/of/somebody/a",
        "script train.py --data_dir=/a/f…me/of/somebody/b",
    )
    assert all(LONG.format(name) in row.comparison_key["engine"] for name, row in zip("ab", report.rows, strict=True))
    assert shown["x Naive"] == ("1.00", "1.00"), "each command is work of its own"
    assert "script" not in report.sections[0].title
    told = comma_separated(report).splitlines()
    assert [LONG.format(name) in line for name, line in zip("ab", told[1:], strict=True)] == [True, True]


def test_one_program_is_in_the_title_without_its_options(run):
    assert (
        "on cpu, script train.py, 1 rank"
        in build_report([run(LONG.format("a")), run(LONG.format("a"), seed=1)]).sections[0].title
    )


def test_what_was_typed_for_a_row_alone_does_not_repeat_its_program(run):
    folders = [run("--lr 1"), run("--lr 1", seed=1), run("--lr 2")]
    for folder, word in zip(folders, ("--lr 1", "--lr 1' seed=1 '", "--lr 2"), strict=True):
        plan = TrainingPlan.read(folder.plan_path)
        folder.write(
            folder.plan_path,
            plan.model_copy(
                update={"overrides": shlex.split(f"engine=script 'engine.options.command=train.py {word}'")}
            ),
        )
    report = build_report(folders)
    asked = next(column.cells for column in report.sections[0].columns if column.header == "asked for")
    assert [words.strip() for words in asked] == ["", "seed=1", ""]


def test_a_group_that_has_a_column_is_not_repeated_in_the_words(run):
    folders = [run("--lr 1"), run("--lr 1", seed=1)]
    for folder, word in zip(folders, ("precision={}", "seed=1"), strict=True):
        plan = TrainingPlan.read(folder.plan_path)
        typed = ["engine=script", word.format(plan.comparison_key["precision"])]
        folder.write(folder.plan_path, plan.model_copy(update={"overrides": typed}))
    section = build_report(folders).sections[0]
    assert [section.own_words[row.id] for row in section.rows] == ["", "seed=1"]


def test_training_on_two_programs_is_compared_under_their_short_names(run):
    (line,) = fairness(build_report([run(LONG.format("a"), speed=100.0), run(LONG.format("b"), speed=50.0)]).rows)
    assert "up to 50.00% apart on script train.py --data_dir=/a/f…me/of/somebody/a and script" in line


def test_pictures_have_room_for_programs(run, figures, tmp_path: Path):
    longer = "an_experiment_with_a_long_name_of_its_own"
    report = build_report([run(f"{LONG.format(longer)} --seed {number}", folder=longer) for number in range(4)])
    draw_report(report, tmp_path / "report.png")  # warnings are errors: a layout without room for its panels would warn
    speed = figures[0].axes[0]
    assert [label.get_text() for label in speed.get_yticklabels()] == [
        f"script train.py --seed {number} Naive" for number in range(4)
    ]
    assert speed.get_window_extent().width > figures[0].bbox.width / 3
    draw_report(
        build_report(
            [run(LONG.format("a"), precision__name="a_precision_of_my_own", optimizer__name="an_optimizer_of_my_own")]
        ),
        tmp_path / "one.png",
    )
    titles = [
        text.get_window_extent()
        for figure in figures
        for text in figure.findobj(Text)
        if text.get_text().startswith("pretrain, ")
    ]
    assert len(titles) == 2
    assert all(0 < title.x0 < title.x1 < figures[0].bbox.x1 for title in titles)


def test_series_of_ranks_name_the_program(run, figures, tmp_path: Path):
    report = build_report([run(LONG.format("a"), parallelism__dp=ranks) for ranks in (1, 2)])
    draw_scaling(report.sections[0], tmp_path / "scaling.png")
    assert [text.get_text() for text in figures[0].legends[0].texts] == [
        "weak: tiny Naive on cpu, script train.py, batch 1 a rank"
    ]
