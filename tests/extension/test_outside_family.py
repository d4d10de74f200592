"""A package of somebody else's adds a family of microbenchmarks: its keys, points, limit, table and curves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs

Llmexp = Callable[..., "subprocess.CompletedProcess[str]"]
WORDS = ("task=micro", "hardware=cpu", "micro.ranks=1", "micro.dtypes=[fp32]")
QUICK = ("measure.samples=5", "measure.point_limit_s=0.01", "tracking=none")


def test_its_points_run_and_its_table_and_limit_stand_in_the_report(
    installed: Path, llmexp: Llmexp, tmp_path: Path
) -> None:
    done = llmexp(installed, *WORDS, *QUICK, "micro=lookups")
    assert done.returncode == 0, done.stderr
    (run,) = find_runs(tmp_path / "outputs")
    points = run.result().points
    assert [point.params for point in points] == [
        {
            "family": "lookups",
            "kind": "embedding",
            "dtype": "fp32",
            "tokens": tokens,
            "vocab": 512,
            "hidden": 128,
            "what_ran": "embedding",
        }
        for tokens in (64, 256, 1024)
    ]
    for point in points:
        moved = 2 * 4 * 128 * point.params["tokens"]
        assert point.metrics["bytes_per_s"].mean == pytest.approx(moved / point.metrics["time_s"].mean)
        assert point.metrics["data_bytes"].mean == moved
    heading, table = done.stdout.partition("rows of the embedding\n")[1:]
    assert heading
    assert [word for word in ("tokens", "vocab", "hidden") if word not in table] == []
    assert (tmp_path / "outputs" / "main" / "report_lookups.png").is_file()
    assert "lookup_bytes_per_s" in llmexp(installed, "report", "outputs/main", "--format", "csv").stdout


def test_it_stands_beside_llmexps_own_families_and_changes_no_run_that_leaves_it_out(
    installed: Path, llmexp: Llmexp, tmp_path: Path
) -> None:
    both = llmexp(installed, "plan", "--json", *WORDS, "micro=memory", "+micro.lookups.tokens=[8]")
    assert both.returncode == 0, both.stderr
    assert [point["family"] for point in json.loads(both.stdout)["plan"]["points"]] == ["memory", "lookups"]
    with_it, without = (llmexp(site, "plan", "--json", *WORDS, "micro=memory") for site in (installed, tmp_path))
    assert with_it.returncode == 0, with_it.stderr
    assert json.loads(with_it.stdout)["plan"] == json.loads(without.stdout)["plan"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("micro=lookups", "micro.lookups.token=[1]"), "unknown key 'micro.lookups.token': did you mean"),
        (("micro=lookups", "micro.lookups.tokens=[0]"), "micro.lookups.tokens.0=0: must be a whole number of at least"),
        (("micro=memory", "micro.memory=null"), "micro.optimizer, micro.disk, micro.lookups"),
        (("micro=lookups", "model.target=a.b"), "micro.operators=null and micro.lookups=null"),
    ],
)
def test_its_keys_are_checked_as_the_others_are(
    installed: Path, llmexp: Llmexp, words: tuple[str, ...], said: str
) -> None:
    done = llmexp(installed, "plan", *WORDS, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
