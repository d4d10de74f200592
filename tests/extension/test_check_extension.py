"""llmexp test-extension: a package that does what it says passes, and each thing that is wrong is named."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.cli.extension import FailedCheckError, _check_same

Llmexp = Callable[..., "subprocess.CompletedProcess[str]"]
GUEST = """
from llmexp.extend import Atom, Engine, TorchEngine, metric

class Other(TorchEngine):
    name = "other"

IDLE = Atom("W", "does nothing at all", {"guest_does": "nothing"})
OTHER = Other()

@metric("s", "lower")
def never_s(repeat, facts):
    \"\"\"Nothing.\"\"\"
    return None
"""
ATOM = """
[llmexp.atoms]
W = guest:IDLE
"""
POINTS = """
[llmexp.engines]
guests = guest:OTHER
[llmexp.metrics]
never_s = guest:never_s
[llmexp.conf]
guest = guest_conf
"""


def install(site: Path, points: str) -> None:
    (site / "guest.py").write_text(GUEST)
    (site / "guest_conf" / "hardware").mkdir(parents=True)
    (site / "guest_conf" / "__init__.py").touch()
    (site / "guest_conf" / "hardware" / "odd.yaml").write_text("name: odd\ndevice: cpu\ndevices_per_nod: 1\n")
    info = site / "guest-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(points)


@pytest.mark.ranks
@pytest.mark.slow
def test_the_package_of_others_does_what_it_says(installed: Path, llmexp: Llmexp, tmp_path: Path) -> None:
    done = llmexp(installed, "test-extension", "llmexp-outside")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    checked = [line.removeprefix("ok      ") for line in done.stdout.splitlines() if line.startswith("ok      ")]
    assert len(checked) == len(done.stdout.splitlines())
    assert {
        "atom E loads, and its name is free",
        "conf model/capped.yaml composes and plans",
        "atom E changes what it says",
        "engine averaging on two ranks has the losses of one process",
        "engine clipping on two ranks has the losses of one process",
        "engine hashlib measures task=hash",
        "metric first_step_time_s gives a number",
        "atom H changes what it says",
        "family lookups loads, and its name is free",
        "dtype fp64 loads, and its name is free",
        "reference survey loads, and its name is free",
        "tracker journal loads, and its name is free",
        "tracker journal takes a run",
        "conf micro/lookups.yaml composes and plans",
        "conf precision/fp64.yaml composes and plans",
    } <= set(checked)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.ranks
def test_what_is_wrong_is_named_and_the_other_checks_go_on(llmexp: Llmexp, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site, POINTS)
    done = llmexp(site, "test-extension", "guest")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "FAILED  engine guests loads, and its name is free: its name is 'other', but its entry point is 'guests': "
        "the two must match",
        "ok      metric never_s loads, and its name is free",
        "ok      conf guest loads, and its name is free",
        "FAILED  conf hardware/odd.yaml composes and plans: hardware.devices_per_node is missing: set "
        "hardware.devices_per_node=<value>",
        "FAILED  metric never_s gives a number: "
        "it is None for a run of the tiny model with one step of warm-up and four measured",
    ]


@pytest.mark.ranks
@pytest.mark.slow
def test_an_atom_that_changes_nothing_is_named(llmexp: Llmexp, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site, ATOM)
    done = llmexp(site, "test-extension", "guest")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "ok      atom W loads, and its name is free",
        "FAILED  atom W changes what it says: method=W trains as method=Naive does: no loss, parameter or "
        "configuration differs",
    ]


def test_a_name_that_is_taken_is_named(llmexp: Llmexp, tmp_path: Path) -> None:
    install(tmp_path, "[llmexp.atoms]\nF = guest:IDLE\n")
    done = llmexp(tmp_path, "test-extension", "guest")
    assert done.returncode == 1
    assert (
        "FAILED  atom F loads, and its name is free: package guest: llmexp.atoms F = guest:IDLE: the name F is taken"
        in done.stdout
    )


@pytest.mark.parametrize(
    ("points", "package", "said"),
    [
        ("", "absent", "no package 'absent' is installed here: pip install it first, then name it"),
        (
            "[console_scripts]\na = guest:a\n",
            "guest",
            "package guest has no entry points of llmexp.atoms, llmexp.engines",
        ),
        (
            "[llmexp.atom]\nW = guest:IDLE\n",
            "guest",
            "package guest: unknown group of entry points llmexp.atom: choices",
        ),
    ],
)
def test_a_package_that_adds_nothing_is_one_line(
    llmexp: Llmexp, tmp_path: Path, points: str, package: str, said: str
) -> None:
    install(tmp_path, points)
    done = llmexp(tmp_path, "test-extension", package)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"llmexp: {said}")


def test_other_losses_are_shown() -> None:
    _check_same([6.0, 5.0], [6.0, 5.00001], "its losses", "those of one")
    with pytest.raises(FailedCheckError, match=r"its losses \(6.000000 5.000000\) are not those of one \(6.000000 5.1"):
        _check_same([6.0, 5.0], [6.0, 5.1], "its losses", "those of one")
    with pytest.raises(FailedCheckError):
        _check_same([float("nan")], [6.0], "its losses", "those of one")
