from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_tokens import TOKENS, private_key

from llmexp.record import checkout as module
from llmexp.record.checkout import checkouts

Git = Callable[..., str]


def test_a_clean_checkout_is_named_without_credentials_and_leaves_no_file(git: Git, tmp_path: Path) -> None:
    found = checkouts(tmp_path / "run")["working_directory"]
    assert found == {"commit": git("rev-parse", "HEAD"), "dirty": False, "remote": "https://***@example.org/a.git"}
    assert not (tmp_path / "run" / "git.working_directory.diff").exists()


def test_uncommitted_changes_are_kept_without_secrets_and_can_be_applied(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    Path("../file").write_text("2 hf_0123456789\n")
    Path("untracked").write_text("new")
    diff = checkouts(tmp_path / "run")["working_directory"]["diff"]
    written = tmp_path / "run" / diff["file"]
    assert diff == {"file": "git.working_directory.diff", "sha256": hashlib.sha256(written.read_bytes()).hexdigest()}
    assert "untracked" not in written.read_text()
    git("checkout", "-q", "file")
    git("apply", str(written))
    assert Path("../file").read_text() == "2 ***\n"


def test_tokens_and_keys_are_hidden_in_changes_that_are_kept(git: Git, tmp_path: Path) -> None:
    secrets = {**TOKENS, "a private key": private_key("RSA PRIVATE KEY")}
    Path("../file").write_text("\n".join(f"{issuer} = '{token}'" for issuer, token in secrets.items()))
    diff = checkouts(tmp_path / "run")["working_directory"]["diff"]
    kept = (tmp_path / "run" / diff["file"]).read_text()
    assert [line for line in kept.splitlines() if line.startswith("+") and " = " in line] == [
        f"+{issuer} = '***'" for issuer in secrets
    ]


def test_long_changes_are_cut_between_lines_and_said_and_what_was_cut_still_tells_them_apart(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_DIFF_BYTES", 300)
    digests = set()
    for end in ("x", "y"):
        Path("../file").write_text("line\n" * 100 + end)
        diff = checkouts(tmp_path / "run")["working_directory"]["diff"]
        *kept, last = (tmp_path / "run" / diff["file"]).read_text().splitlines()
        assert kept[-1] == "+line"
        assert last.startswith("# cut off: the first ")
        digests.add(diff["sha256"])
    assert len(digests) == 2


def test_what_cannot_be_written_is_not_kept_and_nothing_fails(git: Git, tmp_path: Path) -> None:
    Path("../file").write_text("2")
    (tmp_path / "run").write_text("a file where the folder would be")
    found = checkouts(tmp_path / "run")["working_directory"]
    assert (found["dirty"], found["diff"]) == (True, None)


def test_changes_that_are_no_text_are_kept(git: Git, tmp_path: Path) -> None:
    Path("../file").write_bytes(b"caf\xe9\n")
    assert checkouts(tmp_path / "run")["working_directory"]["diff"]


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checkouts(None)["working_directory"] is None
