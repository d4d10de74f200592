"""Questions to git about a checkout; others may have made it, so nothing that its configuration names is started."""

from __future__ import annotations

from pathlib import Path

from llmexp.machine.command import output

# Inside a submodule git would use the submodule's own configuration.
_OUTSIDE_SUBMODULES = ("--ignore-submodules=dirty",)
_TEXT_ONLY = ("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short")


def git(folder: Path, *words: str) -> str | None:
    """Return git's answer, or None where git fails.

    Git runs no file monitor and no hooks, and fetches no object that a partial clone lacks.
    """
    quiet = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    return output("git", "-C", str(folder), *quiet, *words, variables={"GIT_ALLOW_PROTOCOL": ""})


def is_dirty(folder: Path) -> bool:
    """Tell whether tracked files differ from HEAD, those of submodules too; True where git cannot tell."""
    found = _unfiltered(folder, "status", "--porcelain", "--untracked-files=no", *_OUTSIDE_SUBMODULES)
    return found is None or bool(found) or any(map(is_dirty, _submodules(folder)))


def changes(folder: Path) -> str | None:
    """Return the differences of tracked files from HEAD as a patch; changes within submodules are only named."""
    diff = _unfiltered(folder, "diff", "HEAD", *_TEXT_ONLY, *_OUTSIDE_SUBMODULES)
    if diff is None:
        return None
    return diff + "".join(
        f"# not kept: uncommitted changes in the submodule {one.name}\n" for one in _submodules(folder) if is_dirty(one)
    )


def _unfiltered(folder: Path, *words: str) -> str | None:
    """Return git's answer without the filters and hooks that the repository's own configuration names.

    Return None where they cannot be left out. Filters and hooks of the user's configuration still run, for example
    Git LFS as `git lfs install` sets it up. Where LFS is set up for this one repository (`--local`, or with
    extensions), an LFS file that was touched after its checkout counts as changed: its content is compared with its
    pointer.
    """
    listed = git(folder, "config", "--list", "--show-scope", "--name-only", "-z")
    if listed is None:
        return None
    fields = listed.split("\0")
    own = [key for scope, key in zip(fields[::2], fields[1::2], strict=False) if scope in ("local", "worktree")]
    filters, hooks = _named("filter", own), _named("hook", own)
    if any(key.startswith("lfs.extension.") for key in own):
        filters.add("lfs")
    # "=" ends a key on git's command line, and U+FFFD stands for bytes that are not text.
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
    """Return the submodules in .gitmodules that are checked out and whose paths stay within the repository."""
    top = git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return []
    root = Path(top.removesuffix("\n")).resolve()
    listed = (
        git(root, "config", "--file", str(root / ".gitmodules"), "-z", "--get-regexp", r"^submodule\..*\.path$") or ""
    )
    found = [(root / line.partition("\n")[2]).resolve() for line in listed.split("\0") if line]
    return [one for one in found if root in one.parents and (one / ".git").exists()]
