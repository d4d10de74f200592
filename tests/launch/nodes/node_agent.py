"""Stands in for a node's launcher and its one rank.

Call: node_agent.py <repeat's folder> <node> <address:port> <behavior>.
"""

import faulthandler
import os
import runpy
import signal
import sys
import time
from pathlib import Path

folder, node, met, behavior = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
agent = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "agent.py"))
(folder / f"met.{node}").write_text(f"{met} {os.environ['TMPDIR']}")
if behavior == "hang":
    faulthandler.register(signal.SIGUSR1, file=(folder / f"log.{node}.txt").open("w"))
    time.sleep(1000)
if behavior == "second breaks" and node == 1:
    agent["failure"](node, "error", "ValueError: on the other machine")
    sys.exit(1)
if behavior == "second hoards" and node == 1:
    runpy.run_path(str(Path(__file__).parent / "hoard.py"))
if behavior == "second exits" and node == 1:
    sys.exit(3)
if behavior.startswith("second "):
    time.sleep(1000)
for index in range(agent["STEPS"]):
    agent["step"](node, index)
agent["summary"](node)
