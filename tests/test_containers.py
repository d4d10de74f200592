"""The definitions of an image do the same for Docker and for Apptainer, by targets that the Makefile has."""

from __future__ import annotations

import re
import shlex
import subprocess
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCKER, APPTAINER = ROOT / "containers" / "Dockerfile", ROOT / "containers" / "llmexp.def"


def of_docker() -> list[list[str]]:
    lines = DOCKER.read_text().replace("\\\n", " ").splitlines()
    commands = [part for line in lines if line.startswith("RUN ") for part in line[4:].split("&&")]
    return [shlex.split(command.replace("$TORCH", "cpu")) for command in commands]


def of_apptainer() -> list[list[str]]:
    (post,) = re.findall(r"^%post\n(.*?)\n\n", APPTAINER.read_text(), re.S | re.M)
    return [shlex.split(line.replace("{{ TORCH }}", "cpu")) for line in post.splitlines()]


def test_both_images_are_made_by_the_same_commands_from_the_same_base() -> None:
    assert of_docker() == of_apptainer()
    bases = re.findall(r"^(?:FROM|From:) (\S+)$", DOCKER.read_text() + APPTAINER.read_text(), re.M)
    assert bases == ["debian:bookworm-slim"] * 2


def test_what_make_is_asked_for_is_there() -> None:
    *_, (make, _, _, *words) = of_docker()
    assert make == "make"
    assert subprocess.run([make, "--dry-run", *words], cwd=ROOT, capture_output=True).returncode == 0
    assert subprocess.run([make, "--dry-run", *words[:-1], "no-such"], cwd=ROOT, capture_output=True).returncode == 2


def test_nothing_that_a_checkout_gathers_goes_into_the_image() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    gathered = [".venv", ".venv-older", ".git", "outputs", "wheelhouse", "build", "llmexp.egg-info"]
    assert [name for name in gathered if not any(fnmatch(name, pattern) for pattern in ignored)] == []
    assert (ROOT / "constraints.txt").exists()
    assert not any(fnmatch("constraints.txt", pattern) for pattern in ignored)
