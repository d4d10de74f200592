"""A package of somebody else's is really installed.

It adds an atom, an optimizer, a model class, an engine, a metric, hardware and an experiment.
"""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.record.folder import find_runs

EMBEDDING = 512 * 128
BROKEN, REMEDY, NO_PACKAGE = (
    "cannot be loaded",
    "fix or uninstall it",
    "No module named 'guest.conf'; 'guest' is not a package",
)
Llmexp = Callable[..., "subprocess.CompletedProcess[str]"]


def pretend_to_install(site: Path, group: str, line: str, source: str = "") -> None:
    """What pip leaves of a package with one module and one entry point."""
    (site / "guest.py").write_text(source)
    info = site / "guest-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{line}\n")


@pytest.mark.ranks
def test_all_that_a_package_adds_runs(installed: Path, llmexp: Llmexp, tmp_path: Path, empty_store: Path) -> None:
    quick = ("measure.profile=false", "measure.threads_per_rank=1", f"tracking.timeout_s={HANG_S:g}")
    done = llmexp(installed, "experiment=outside", "tracking=none", "tracking.also=journal", *quick)
    assert done.returncode == 0, done.stderr
    (folder,) = find_runs(tmp_path / "outputs" / "outside")
    result, rank = folder.result(), json.loads((folder.repeat(0) / "rank.0.json").read_text())
    assert result is not None
    assert (result.status, result.method, result.model, result.hardware, result.engine) == (
        "success",
        "Z2+E",
        "capped",
        "box",
        "clipping",
    )
    assert result.what_ran["optimizer_class"] == "llmexp_outside.ranks.SignDescent"
    assert result.what_ran["model_class"] == "llmexp_outside.ranks.CappedLlama"
    assert rank["parameters"] - rank["trainable_parameters"] == EMBEDDING
    assert result.environment["distributions"]["llmexp-outside"] == "1.2"
    first_step_s = result.metrics["first_step_time_s"]
    assert first_step_s.mean > 0
    report = (tmp_path / "outputs" / "outside" / "report.md").read_text()
    assert "1st step s: wall time of the first step, which compiles and allocates, on the slowest rank" in report
    (line,) = csv.DictReader((tmp_path / "outputs" / "outside" / "report.csv").read_text().splitlines())
    assert float(line["first_step_time_s"]) == pytest.approx(first_step_s.mean)
    assert "| 1st step s |" in (tmp_path / "outputs" / "outside" / "report.md").read_text()
    shutil.copy(empty_store, tmp_path / "store.db")
    assert llmexp(installed, "sync", "--uri", "sqlite:///store.db").returncode == 0
    with closing(sqlite3.connect(tmp_path / "store.db")) as store:
        recorded = store.execute("SELECT value FROM metrics WHERE key = 'first_step_time_s'").fetchall()
    assert recorded == [(first_step_s.mean,)]
    (page,) = tmp_path.glob(f"outputs/journal/outside/{folder.path.name}/page.txt")
    first, *figures = page.read_text().splitlines()
    assert (first.partition(" ")[0], first.rpartition(": ")[2]) == ("capped", "success")
    assert f"first_step_time_s {first_step_s.mean:g}" in figures
    seen = json.loads(llmexp(installed, "report", "--json").stdout)
    assert seen["metrics"]["pretrain"]["first_step_time_s"]["unit"] == "s"


def test_a_plan_says_what_the_package_decides_and_leaves_unsaid_what_only_building_shows(
    installed: Path, llmexp: Llmexp
) -> None:
    done = llmexp(
        installed, "plan", "--json", "method=E", "model=tiny", "engine=clipping", "optimizer=sign", "hardware=box"
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)["plan"]
    assert plan["atoms"] == [
        {
            "code": "E",
            "help": "embeddings stay as they are, the rest trains",
            "sets": {"outside_frozen": "embed_tokens"},
        }
    ]
    assert plan["engine_config"]["gradient_clipping"] == 0.5
    assert (plan["parameters"], plan["flops_per_token"], plan["memory"]) == (None, None, None)


def test_what_a_package_adds_obeys_the_rules_of_methods(installed: Path, llmexp: Llmexp) -> None:
    done = llmexp(installed, "plan", "method=E+Q")
    assert (done.returncode, done.stderr) == (2, "llmexp: method 'E+Q': E and Q exclude each other; keep one of them\n")


def test_help_and_configuration_show_what_a_package_adds(installed: Path, llmexp: Llmexp) -> None:
    help_text = llmexp(installed, "--help", "all").stdout
    assert "\n  E    embeddings stay as they are" in help_text
    for option in ("capped", "box", "sign", "clipping", "outside"):
        assert option in help_text
    assert "target: llmexp_outside.ranks.SignDescent" in llmexp(installed, "--cfg", "job", "optimizer=sign").stdout


@pytest.mark.parametrize(
    ("group", "line", "source", "message"),
    [
        (
            "atoms",
            "W = guest:W",
            "import absent",
            f"atoms W = guest:W {BROKEN} (ModuleNotFoundError: No module named 'absent'); {REMEDY}",
        ),
        (
            "atoms",
            "W = guest:W",
            "",
            f"atoms W = guest:W {BROKEN} (AttributeError: module 'guest' has no attribute 'W'); {REMEDY}",
        ),
        (
            "atoms",
            "W = guest:W",
            "1 / 0",
            f"atoms W = guest:W {BROKEN} (ZeroDivisionError: division by zero); {REMEDY}",
        ),
        ("atoms", "W = guest:W", "W = 1", "atoms W = guest:W is a int, not a Atom"),
        (
            "atoms",
            "z3 = guest:W",
            "",
            "atoms z3 = guest:W: the name z3 is taken: choose another, or uninstall guest",
        ),
        (
            "engines",
            "deepspeed = guest:W",
            "",
            "engines deepspeed = guest:W: the name deepspeed is taken: choose another, or uninstall guest",
        ),
        (
            "references",
            "paper = guest:W",
            "",
            "references paper = guest:W: the name paper is taken: choose another, or uninstall guest",
        ),
        ("references", "mine = guest:W", "W = 1", "references mine = guest:W is a int, not a Reference"),
        (
            "trackers",
            "mlflow = guest:W",
            "",
            "trackers mlflow = guest:W: the name mlflow is taken: choose another, or uninstall guest",
        ),
        ("trackers", "mine = guest:W", "W = 1", "trackers mine = guest:W is a int, not a RunTracker"),
        (
            "trackers",
            "mine = guest:W",
            "from llmexp.extend import RunTracker\nclass W(RunTracker):\n    name = 'w'\n    write = None\nW = W()",
            "trackers mine = guest:W is named w; the two names have to be one",
        ),
        (
            "metrics",
            "MFU = guest:W",
            "",
            "metrics MFU = guest:W: the name MFU is taken: choose another, or uninstall guest",
        ),
        ("metrics", "mine_s = guest:W", "W = 1", "metrics mine_s = guest:W is a int, not a MetricSpec"),
        (
            "metrics",
            "my.time = guest:W",
            "from llmexp.extend import metric\nW = metric('s')(len)",
            "metrics my.time: a metric's name is a word of letters, digits and _, with its unit at the end, as in "
            "slow_step_time_s",
        ),
        (
            "conf",
            "mine = guest.conf",
            "",
            f"conf mine = guest.conf {BROKEN} (ModuleNotFoundError: {NO_PACKAGE}); {REMEDY}",
        ),
        ("conf", "mine = guest", "", "conf mine = guest is a module, not a package of YAML files"),
    ],
)  # fmt: skip
def test_a_broken_package_is_named_in_one_line(
    llmexp: Llmexp, tmp_path: Path, group: str, line: str, source: str, message: str
) -> None:
    pretend_to_install(tmp_path, f"llmexp.{group}", line, source)
    words = {"atoms": "method=W", "trackers": "tracking.also=mine"}
    done = llmexp(tmp_path, "plan", words.get(group, "method=F"))
    assert (done.returncode, done.stderr) == (2, f"llmexp: package guest: llmexp.{message}\n")


def test_a_file_that_llmexp_has_too_is_refused(llmexp: Llmexp, tmp_path: Path) -> None:
    (tmp_path / "files" / "model").mkdir(parents=True)
    (tmp_path / "files" / "__init__.py").touch()
    (tmp_path / "files" / "model" / "7b.yaml").write_text("name: other\n")
    pretend_to_install(tmp_path, "llmexp.conf", "mine = files")
    done = llmexp(tmp_path, "plan")
    expected = (
        "llmexp: package guest: llmexp.conf mine = files has model/7b.yaml, which llmexp has too; "
        "give it another name\n"
    )
    assert (done.returncode, done.stderr) == (2, expected)
