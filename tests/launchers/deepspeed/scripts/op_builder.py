"""Stands in for the compiler: op_builder.py <tally> <behavior> <op>.

It adds to the tally and builds, waits for release, fails or never ends.
"""

import os
import sys
import time
from pathlib import Path

tally, behavior, op = sys.argv[1:]
scratch = Path(os.environ["TORCH_EXTENSIONS_DIR"])
with Path(tally).open("a") as file:
    file.write(f"{op} beside {sorted(path.name for path in scratch.iterdir() if path.is_dir())}\n")
if behavior == "never":
    time.sleep(600)
while behavior == "when released" and not Path(tally).with_name("released").exists():
    time.sleep(0.02)
if behavior == "fail":
    sys.exit("error: no such header")
(scratch / op).mkdir()
(scratch / op / f"{op}.so").write_text("machine code")
