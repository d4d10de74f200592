"""Another machine of a run in a process of its own: joiner.py <node> <port>."""

import sys
from pathlib import Path

import llmexp.engines
from llmexp.launch.nodes.join import join
from llmexp.launch.nodes.place import Place

llmexp.engines.__path__.append(str(Path(__file__).parents[1] / "engines"))
join(Place(int(sys.argv[1]), 2, "127.0.0.1", int(sys.argv[2])))
