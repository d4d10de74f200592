"""Checkouts whose own configuration names programs.

Each attack ran its program with git as it is asked without these guards.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.record.checkout import checkouts

Git = Callable[..., str]


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def program(tmp_path: Path, ran: Path) -> str:
    """Leaves a file where it was started, and passes on what it was given."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    path.chmod(0o755)
    return str(path)


def looked_at(tmp_path: Path) -> tuple[dict[str, Any], str | None]:
    """What is recorded of the working directory's checkout, and its changes where they are kept."""
    found = checkouts(tmp_path)["working_directory"]
    return found, (tmp_path / found["diff"]["file"]).read_text() if found.get("diff") else None


FILTERS = ["filter.odd.clean", "filter.odd.process", "filter.a.b.clean", "filter..clean"]
OTHERS = ["diff.odd.textconv", "diff.odd.command", "diff.external", "core.fsmonitor"]


@pytest.mark.parametrize("key", FILTERS + OTHERS)
def test_programs_that_the_repository_names_are_not_asked(
    git: Git, tmp_path: Path, program: str, ran: Path, key: str
) -> None:
    section, _, rest = key.partition(".")
    name = rest.rpartition(".")[0]
    git("config", key, program)
    git("config", f"{section}.{name}.required", "true")
    Path("../.git/info/attributes").write_text(f"* {section}={name}\n")
    Path("../file").write_text("2\n")
    found, changes = looked_at(tmp_path)
    assert found["dirty"]
    assert "+2" in (changes or "")
    assert not ran.exists()


@pytest.mark.parametrize("name", [b"a=b", b"a\xff"], ids=ascii)
def test_a_filter_whose_name_cannot_be_said_to_git_leaves_the_changes_unknown(
    git: Git, tmp_path: Path, program: str, ran: Path, name: bytes
) -> None:
    with Path("../.git/config").open("ab") as config:
        config.write(b'[filter "%s"]\nclean = %s\n' % (name, program.encode()))
    Path("../.gitattributes").write_bytes(b"* filter=%s\n" % name)
    found, changes = looked_at(tmp_path)
    assert (found["dirty"], changes) == (True, None)
    assert not ran.exists()


def test_hooks_are_not_started(git: Git, tmp_path: Path, program: str, ran: Path) -> None:
    git("config", "hook.odd.event", "post-index-change")
    git("config", "hook.odd.command", program)
    hook = Path("../.git/hooks/post-index-change")
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(program, hook)
    Path("../file").touch()
    assert not looked_at(tmp_path)[0]["dirty"]
    assert not ran.exists()


@pytest.mark.parametrize("url", ["ssh://host/x", "ext::{program}", "{repository}"])
def test_what_a_partial_clone_lacks_is_not_fetched(git: Git, tmp_path: Path, program: str, ran: Path, url: str) -> None:
    blob = git("rev-parse", "HEAD:file")
    Path("../.git/objects", blob[:2], blob[2:]).unlink()
    settings = {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": url.format(program=program, repository=tmp_path / "repository"),
        "remote.origin.uploadpack": program,
        "core.sshCommand": program,
        "protocol.ext.allow": "always",
    }
    for key, value in settings.items():
        git("config", key, value)
    Path("../file").write_text("2\n")
    found, changes = looked_at(tmp_path)
    assert (found["dirty"], changes) == (True, None)
    assert not ran.exists()


def test_a_changed_submodule_is_told_and_nothing_that_it_names_is_started(
    git: Git, tmp_path: Path, program: str, ran: Path
) -> None:
    shutil.copytree("../.git", tmp_path / "other/.git")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "other"), "inner")
    git("commit", "-qm", "second")
    assert not looked_at(tmp_path)[0]["dirty"]
    git("config", "diff.submodule", "diff")
    for key in ("filter.odd.clean", "diff.external", "core.fsmonitor"):
        git("-C", "inner", "config", key, program)
    Path("../.git/modules/inner/info/attributes").write_text("* filter=odd\n")
    Path("../inner/file").write_text("2\n")
    found, changes = looked_at(tmp_path)
    assert (found["dirty"], changes) == (True, "# not kept: uncommitted changes in the submodule inner\n")
    assert not ran.exists()


def test_submodules_lead_nowhere_else(git: Git, tmp_path: Path) -> None:
    Path("../.gitmodules").write_text(
        "".join(f'[submodule "{path}"]\npath = {path}\n' for path in ("..", ".", "link", "folder"))
    )
    Path("../link").symlink_to(".")
    assert not looked_at(tmp_path)[0]["dirty"]


@pytest.mark.parametrize("own", [None, "filter.lfs.required", "lfs.extension.odd.clean"])
def test_filters_of_the_user_go_on_where_the_repository_changes_nothing_about_them(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, ran: Path, own: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    git("config", "--global", "filter.lfs.clean", f"{program} | sed s/2/1/")
    if own:
        git("config", own, "true")
    Path("../.git/info/attributes").write_text("* filter=lfs\n")
    Path("../file").write_text("2\n")
    assert (looked_at(tmp_path)[0]["dirty"], ran.exists()) == ((True, False) if own else (False, True))
