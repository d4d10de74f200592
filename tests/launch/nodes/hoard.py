"""Enters the memory control group that MEMORY_GROUP names, and takes 256 MiB there."""

import os
from pathlib import Path

(Path(os.environ["MEMORY_GROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
hoard = b"x" * 2**28
