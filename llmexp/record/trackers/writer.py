"""The process that writes runs for one tracker: `python -m llmexp.record.trackers.writer`, told on standard input.

A tracker's library may start threads and processes, print, change the environment or hang: here it costs the driver and
its ranks nothing. It answers with a line of JSON for each folder on what was standard output.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from llmexp.errors import LlmexpError, RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.process import die_with_parent
from llmexp.record.redact import redact
from llmexp.record.trackers.content import read
from llmexp.record.trackers.copied import put
from llmexp.record.trackers.run_tracker import RunTracker, tracked_run
from llmexp.registry import get_tracker

WRITTEN, NOT_ENDED, UNREADABLE, FAILED = "written", "not_ended", "unreadable", "failed"
LONGEST_REASON = 200


def main() -> int:
    """Write all folders; end with the first that the tracker fails for."""
    die_with_parent()
    answers = _answers()
    told = json.load(sys.stdin)
    try:
        tracker = get_tracker(told["tracker"])
        for number, path in enumerate(told["folders"]):
            written = Path(told["scratch"]) / str(number)
            answer = _write(tracker, RunFolder(path), written, told["project"])
            print(json.dumps(answer), file=answers, flush=True)
    except Exception as error:  # somebody else's code can raise anything
        print(json.dumps([FAILED, _in_a_line(error)]), file=answers, flush=True)
        return 1
    return 0


def _write(tracker: RunTracker, folder: RunFolder, written: Path, project: str) -> tuple[str, str]:
    """Write one run for the tracker, and say what became of it, and why where it was not written."""
    try:
        content = read(folder)
        run = tracked_run(content, project) if content else None
    except (RecordError, OSError) as error:
        return UNREADABLE, str(error)
    if content is None or run is None:
        return NOT_ENDED, ""
    written.mkdir()
    tracker.write(run, written)
    put(written, content, tracker.name, written.parent)
    return WRITTEN, ""


def _answers() -> TextIO:
    """Return standard output for the answers alone; whatever a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _in_a_line(error: Exception) -> str:
    said: Any = next(iter(str(error).strip().splitlines()), "")
    words = said if isinstance(error, LlmexpError) else f"{type(error).__name__}: {said}".removesuffix(": ")
    return redact(words)[:LONGEST_REASON]


if __name__ == "__main__":
    sys.exit(main())
