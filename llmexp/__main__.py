"""The entry point of `python -m llmexp` and `llmexp`: a command is called by its name, everything else is a run.

The exit code is 0 when the request was answered, 1 when it was not, 2 for wrong input and 130 for Ctrl-C.
"""

from __future__ import annotations

import atexit
import gc
import locale
import os
import signal
import sys
from collections.abc import Sequence

from llmexp.errors import ConfigError, LlmexpError, in_one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the words ask for and return the exit code; errors that a person can mend are one line on stderr."""
    # Imports and composing make many objects and hardly a cycle: Python's own threshold takes 5 % of a command's time.
    gc.set_threshold(300_000)
    if argv is None:
        atexit.register(gc.freeze)  # the last collection would take a second where MLflow was imported, for nothing
        _open_closed_streams()
        if not _has_folder():
            print("llmexp: the working directory no longer exists: cd to another one", file=sys.stderr)
            return 1
        _look_here_last()
        _speak_utf8()
        _end_at_sigterm()
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
        print(f"llmexp: {in_one_line(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:  # llmexp plan ... | head; what is still buffered must not fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a disk that is full, read-only or gone
        print(f"llmexp: {in_one_line(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("llmexp: interrupted; the same command resumes with what is missing", file=sys.stderr)
        return 130


def _open_closed_streams() -> None:
    """Give a process without standard streams (`>&-`) some that hold nothing.

    Else a file that is opened later would have their numbers, and get what children print.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _look_here_last() -> None:
    """Make the working directory the last place for imports: `python -m` puts it first, and it may hold a psutil.py."""
    if sys.path[:1] == [os.getcwd()]:
        sys.path.append(sys.path.pop(0))


def _speak_utf8() -> None:
    """Restart Python in UTF-8 mode where the locale cannot write what runs print; files are UTF-8 everywhere."""
    if not sys.flags.utf8_mode and locale.getencoding().lower().replace("-", "") != "utf8":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONUTF8": "1"})


def _end_at_sigterm() -> None:
    """Take SIGTERM for Ctrl-C: without a handler, `docker stop` would not reach a container's first process."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


if __name__ == "__main__":
    sys.exit(main())
