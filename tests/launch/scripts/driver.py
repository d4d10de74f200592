"""A driver in a process of its own, to be interrupted and killed: driver.py <plan.json> <run folder>."""

import signal
import sys
from pathlib import Path

import llmexp.engines
from llmexp.launch.run import run_one
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts in the background deaf to SIGINT
llmexp.engines.__path__.append(str(Path(__file__).parent.parent / "engines"))
run_one(RunPlan.read(Path(sys.argv[1])), RunFolder(sys.argv[2]))
