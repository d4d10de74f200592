from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from patience import HANG_S

SPEAKING = """
import sys
from pathlib import Path
from llmexp.launch.display import enduring, say
with enduring():
    sys.stdin.readline()
    for _ in range(3):
        say("step")
        print("x" * 100_000)
    Path(sys.argv[1]).touch()
"""


def test_nobody_who_listens_is_nothing_that_ends_a_run(tmp_path: Path) -> None:
    done = tmp_path / "done"
    (heard, said), (listens, begins) = os.pipe(), os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", SPEAKING, str(done)], stdin=listens, stdout=said, stderr=said
    ) as speaker:
        for end in (heard, said, listens):
            os.close(end)
        os.write(begins, b"\n")
        os.close(begins)
        assert speaker.wait(timeout=HANG_S) == 0
    assert done.exists()
