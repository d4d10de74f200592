"""What git says about a checkout that others may have made: nothing that its own configuration names is started."""

from __future__ import annotations

from pathlib import Path

from llmexp.machine.command import output

# Into a submodule git would go with that one's own configuration.
_OUTSIDE_SUBMODULES = ("--ignore-submodules=dirty",)
_TEXT_ONLY = ("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short")


def git(folder: Path, *words: str) -> str | None:
    """The answer of git, which asks neither a file monitor nor hooks, and fetches no object that a partial clone lacks; None where it fails."""
    quiet = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    return output("git", "-C", str(folder), *quiet, *words, variables={"GIT_ALLOW_PROTOCOL": ""})


def is_dirty(folder: Path) -> bool:
    """Whether tracked files differ from HEAD, those of submodules too; True where git cannot tell."""
    found = _unfiltered(folder, "status", "--porcelain", "--untracked-files=no", *_OUTSIDE_SUBMODULES)
    return found is None or bool(found) or any(map(is_dirty, _submodules(folder)))


def changes(folder: Path) -> str | None:
    """What differs from HEAD in tracked files, as a patch; changes within submodules are only named."""
    diff = _unfiltered(folder, "diff", "HEAD", *_TEXT_ONLY, *_OUTSIDE_SUBMODULES)
    if diff is None:
        return None
    return diff + "".join(
        f"# not kept: uncommitted changes in the submodule {one.name}\n" for one in _submodules(folder) if is_dirty(one)
    )


def _unfiltered(folder: Path, *words: str) -> str | None:
    """
    The answer of git without the filters and hooks that the repository's own configuration names, None where they cannot be left out.

    Those of the user's configuration go on, Git LFS as `git lfs install` leaves it among them. Where LFS is set up for the one repository
    (`--local`, or with extensions), a file of it that was touched since it was checked out counts as changed, its content against its pointer.
    """
    listed = git(folder, "config", "--list", "--show-scope", "--name-only", "-z")
    if listed is None:
        return None
    fields = listed.split("\0")
    own = [key for scope, key in zip(fields[::2], fields[1::2], strict=False) if scope in ("local", "worktree")]
    filters, hooks = _named("filter", own), _named("hook", own)
    if any(key.startswith("lfs.extension.") for key in own):
        filters.add("lfs")
    # The one ends a key on git's command line, the other stands for bytes that are no text.
    if any(sign in name for name in filters | hooks for sign in "=\ufffd"):
        return None
    settings = [
        f"filter.{name}.{setting}" for name in sorted(filters) for setting in ("clean=", "process=", "required=false")
    ]
    settings += [f"hook.{name}.enabled=false" for name in sorted(hooks)]
    return git(folder, *(word for setting in settings for word in ("-c", setting)), *words)


def _named(section: str, keys: list[str]) -> set[str]:
    return {key.removeprefix(f"{section}.").rpartition(".")[0] for key in keys if key.startswith(f"{section}.")}


def _submodules(folder: Path) -> list[Path]:
    """The submodules that are checked out, by .gitmodules, whose paths lead nowhere else."""
    top = git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return []
    root = Path(top.removesuffix("\n")).resolve()
    listed = (
        git(root, "config", "--file", str(root / ".gitmodules"), "-z", "--get-regexp", r"^submodule\..*\.path$") or ""
    )
    found = [(root / line.partition("\n")[2]).resolve() for line in listed.split("\0") if line]
    return [one for one in found if root in one.parents and (one / ".git").exists()]
