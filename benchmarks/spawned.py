"""A program that runs the command after its first word, and writes the command's cost to the file of that name.

The kernel counts what a parent holds when it starts a command as the command's first peak of memory, so the parent has
to be small: this one imports nothing that is not Python's own.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Run the command to its end; its exit code, seconds and bytes are the result, whatever they are."""
    begun_s = time.monotonic()
    process = subprocess.Popen(sys.argv[2:])
    # The process has ended but is not reaped yet: only now the kernel tells its own time apart from its children's.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wall_s = time.monotonic() - begun_s
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    own_s, all_s = (sum(map(int, fields[11:end])) / os.sysconf("SC_CLK_TCK") for end in (13, 15))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    cost = {"own_cpu_s": own_s, "all_cpu_s": all_s, "begun_s": begun_s, "wall_s": wall_s}
    cost |= {"peak_rss_bytes": usage.ru_maxrss * 1024, "exit_code": process.returncode}
    Path(sys.argv[1]).write_text(json.dumps(cost))


if __name__ == "__main__":
    main()
