"""A package of somebody else's adds a whole task, without a fork of llmexp.

The task has its configuration, plan, engine, worker, samples, metrics and table.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs

SWEEP = ("task=hash", "digest.algorithm=md5,sha256")


@pytest.fixture
def swept(swept_once: tuple[Path, str], tmp_path: Path) -> str:
    """What a sweep over two algorithms printed; its outputs and its store lie in the test's folder."""
    folder, said = swept_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return said


def test_it_sweeps_and_its_table_has_its_own_columns(swept: str, tmp_path: Path) -> None:
    md5, sha256 = (run.result() for run in find_runs(tmp_path / "outputs"))
    assert (md5.status, md5.task, md5.engine, md5.processes, md5.devices, md5.repeats) == (
        "success",
        "hash",
        "hashlib",
        1,
        1,
        2,
    )
    assert (md5.model, md5.method, md5.batch, md5.seq_len) == (None, None, None, None)
    assert (md5.metrics["digest_bits"].mean, sha256.metrics["digest_bits"].mean) == (128, 256)
    assert md5.stability.metric == "bytes_per_s"
    assert md5.stability.low < md5.metrics["bytes_per_s"].mean < md5.stability.high
    assert [(point.params, point.metrics["bytes_per_s"].n) for point in md5.points] == [
        ({"half": 0}, 2),
        ({"half": 1}, 2),
    ]
    assert md5.environment["distributions"]["llmexp-outside"] == "1.2"
    heading, rows = swept.partition("hash, on cpu, hashlib, 1 rank, block_bytes 100000")[1:]
    assert heading
    assert [line.split()[:2] for line in rows.splitlines() if line.split()[:1] in (["1"], ["2"])] == [
        ["1", "md5"],
        ["2", "sha256"],
    ]
    (report,) = tmp_path.glob("outputs/*/report.md")
    assert "bytes/s: bytes digested a second, over the measured window" in report.read_text()
    assert "MB" not in rows


@pytest.mark.slow
def test_the_same_sweep_again_measures_nothing_and_another_key_does(
    swept: str, installed: Path, llmexp: Callable[..., object]
) -> None:
    assert llmexp(installed, *SWEEP, "tracking=none").stdout.count(": success already, ") == 2
    again = llmexp(installed, *SWEEP, "digest.block_bytes=1000", "tracking=none")
    assert again.stderr.count(" · success · ") == 2
    assert "(2 by the time of similar runs)" in again.stdout


def test_two_of_its_runs_are_compared_and_one_is_reproduced_by_its_rate(
    swept: str, installed: Path, llmexp: Callable[..., object], tmp_path: Path
) -> None:
    md5, sha256 = (str(run.path) for run in find_runs(tmp_path / "outputs"))
    said = llmexp(installed, "compare", md5, sha256).stdout
    assert "same work" in said
    assert "equally fast: bytes_per_s is " in said
    again = llmexp(installed, "reproduce", md5, "--yes").stdout.splitlines()
    assert again[-1].startswith(("reproduced: bytes_per_s", "NOT reproduced: bytes_per_s", "cannot tell: bytes_per_s"))


def test_its_runs_are_reported_beside_those_of_other_tasks(
    swept: str, installed: Path, llmexp: Callable[..., object], tmp_path: Path, make_run: Callable[..., object]
) -> None:
    made = make_run(metrics={"tokens_per_s": 5.0})
    paths = ("outputs", str(made.path))
    sections = [
        line
        for line in llmexp(installed, "report", *paths, "--format", "markdown").stdout.splitlines()
        if line.startswith("## ")
    ]
    assert [section.split(",")[0] for section in sections] == ["## hash", "## pretrain"]
    text = llmexp(installed, "report", *paths, "--format", "csv").stdout
    rows = {row["task"]: row for row in csv.DictReader(io.StringIO(text))}
    assert (rows["hash"]["algorithm"], rows["hash"]["digest_bits"], rows["hash"]["tokens_per_s"]) == (
        "sha256",
        "256.0",
        "",
    )
    assert (rows["pretrain"]["algorithm"], rows["pretrain"]["tokens_per_s"]) == ("", "5.0")
    assert "40/40" in llmexp(installed, "status").stdout


def test_a_reference_of_the_package_stands_beside_its_runs(
    swept: str, installed: Path, llmexp: Callable[..., object], tmp_path: Path
) -> None:
    said = llmexp(installed, "report", "outputs", "--explain").stdout
    assert "survey: made up, on another machine" in said
    assert "the survey printed nothing of it" in said
    text = llmexp(installed, "report", "outputs", "--format", "csv").stdout
    rows = {row["algorithm"]: row["survey_bytes_per_s"] for row in csv.DictReader(io.StringIO(text))}
    assert rows == {"md5": "", "sha256": "200000000.0"}
    views = llmexp(installed, "report", "survey", "outputs", "--format", "markdown").stdout
    assert views.startswith("### speeds of digests")
    assert "| 2e+08 |" in views
    assert "(1 by the survey's bytes/s, start-up left out, 1 unknown)" in swept


def test_mlflow_has_its_metrics_a_sample_and_its_points(
    swept: str, installed: Path, llmexp: Callable[..., object], tmp_path: Path, empty_store: Path
) -> None:
    def counts(database: Path) -> dict[str, int]:
        with closing(sqlite3.connect(database)) as store:
            return dict(store.execute("SELECT key, count(*) FROM metrics GROUP BY key").fetchall())

    recorded = counts(tmp_path / "mlflow.db")
    names = ("bytes_per_s", "repeat.1/block_time_s", "repeat.0/digested_bytes", "points/bytes_per_s")
    assert [recorded[name] for name in names] == [2, 90, 90, 4]
    shutil.copy(empty_store, tmp_path / "other.db")
    assert llmexp(installed, "sync", "--uri", "sqlite:///other.db").returncode == 0
    assert counts(tmp_path / "other.db")["bytes_per_s_low"] == 2


def test_its_plan_says_what_it_decides(installed: Path, llmexp: Callable[..., object]) -> None:
    said = llmexp(installed, "plan", "task=hash").stdout
    assert said.startswith("sha256 on cpu: hash by hashlib, run ")
    assert "45 blocks of 100000 bytes" in said
    plan = json.loads(llmexp(installed, "plan", "--json", "task=hash").stdout)["plan"]
    assert (plan["processes"], plan["config"]["digest"]["block_bytes"]) == (1, 100_000)
    assert not {"batch", "dims", "method"} & plan.keys()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("task=hash", "batch.micro=2"),
            "batch belongs to task=pretrain or task=finetune: add that, or leave batch out",
        ),
        (
            ("task=hash", "optimizer=lion"),
            "this task has no optimizer=: leave it out, or name another task",
        ),
        (
            ("task=hash", "digest.block_bytes=0"),
            "digest.block_bytes=0: must be a whole number of at least 1, as in 16e9",
        ),
        (
            ("task=hash", "digest.block=1"),
            "unknown key 'digest.block': did you mean digest.block_bytes? keys of digest are algorithm, block_bytes",
        ),
        (
            ("task=hash", "engine=torch"),
            "engine=torch belongs to task=pretrain or task=finetune: add that; choices are hashlib, with task=hash",
        ),
        (
            ("task=hash", "engine.launcher=spawn"),
            "engine.launcher=spawn does not start engine=hashlib: choices are python",
        ),
        (("digest.block_bytes=1",), "digest belongs to task=hash: add that, or leave digest out"),
        (
            ("engine=hashlib",),
            "engine=hashlib belongs to task=hash: add that; choices are deepspeed, megatron, script, torch, torchft, "
            "averaging, clipping, with task=pretrain",
        ),
    ],
)
def test_what_is_not_its_own_is_one_line(
    installed: Path, llmexp: Callable[..., object], words: tuple[str, ...], said: str
) -> None:
    done = llmexp(installed, "plan", *words)
    assert (done.returncode, done.stderr) == (2, f"llmexp: {said}\n")


def test_a_run_of_a_task_that_is_not_installed_hides_no_other(
    swept: str, llmexp: Callable[..., object], tmp_path: Path, make_run: Callable[..., object]
) -> None:
    made = make_run(metrics={"tokens_per_s": 5.0})
    said = llmexp(tmp_path, "report", "outputs", str(made.path))
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("plan.json: unknown task 'hash': choices are pretrain, finetune") == 2
    assert " 5.0" in said.stdout
