"""`python -m llmexp` and `llmexp`: a command by its name, everything else is a run. Exits: 0 answered, 1 not, 2 wrong input, 130 Ctrl-C."""

from __future__ import annotations

import gc
import locale
import os
import sys
from collections.abc import Sequence

from llmexp.errors import ConfigError, LlmexpError


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the words say and return the exit code; every error that a person can mend is one line on stderr."""
    gc.set_threshold(
        100_000
    )  # composing makes many objects and hardly a cycle: looking for those after each 700 takes 5 % of a command
    if argv is None:
        _look_here_last()
        _speak_utf8()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        from llmexp.cli.commands import carry_out, command_in  # takes a while, and Ctrl-C may come meanwhile

        if words[:1] == ["help"]:
            words = [*words[1:], "--help"]
        if found := command_in(words):
            return carry_out(*found)
        from llmexp.cli import run

        return run.main(words)
    except LlmexpError as error:
        print(f"llmexp: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:  # llmexp plan ... | head; what is still buffered must not fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a disk that is full, read-only or gone
        print(f"llmexp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("llmexp: interrupted; the same command goes on with what is missing", file=sys.stderr)
        return 130


def _look_here_last() -> None:
    """`python -m` looks for libraries in the working directory first, where others may have left a psutil.py."""
    if sys.path[:1] == [os.getcwd()]:
        sys.path.append(sys.path.pop(0))


def _speak_utf8() -> None:
    """Begin anew where the locale could not write what runs say, such as a model's name; files are UTF-8 everywhere."""
    if not sys.flags.utf8_mode and locale.getencoding().lower().replace("-", "") != "utf8":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONUTF8": "1"})


if __name__ == "__main__":
    sys.exit(main())
