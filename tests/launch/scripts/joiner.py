"""Another machine of a run in a process of its own: joiner.py <node> <port>."""

import sys
from pathlib import Path

import llmexp.engines
from llmexp.launch.join import join
from llmexp.launch.place import Place

llmexp.engines.__path__.append(str(Path(__file__).parent.parent / "engines"))
join(Place(int(sys.argv[1]), 2, "127.0.0.1", int(sys.argv[2])))
