"""A driver in a process of its own, to be interrupted and killed: driver.py <plan.json> <run folder>."""

import os
import signal
import sys
from pathlib import Path

import llmexp.registry
from llmexp.launch import host_memory
from llmexp.launch.run import run_one
from llmexp.record.folder import RunFolder
from llmexp.training.plan.training_plan import TrainingPlan

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts in the background deaf to SIGINT
if "LLMEXP_TEST_JOINS" in os.environ:  # the processes of a control group
    Path(os.environ["LLMEXP_TEST_JOINS"]).write_text(str(os.getpid()))
host_memory.LEAST_LEFT_SHARE = float(os.environ.get("LLMEXP_TEST_LEAST_LEFT_SHARE", host_memory.LEAST_LEFT_SHARE))
sys.path.append(str(Path(__file__).parent.parent / "engines"))
llmexp.registry.ENGINES["scripted"] = "scripted:ENGINE"
run_one(TrainingPlan.read(Path(sys.argv[1])), RunFolder(sys.argv[2]))
