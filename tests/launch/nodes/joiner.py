"""Another machine of a run in a process of its own: joiner.py <node> <port> <the sweep's folder> [<bytes>].

The bytes are what each process of the run holds where memory is used up.
"""

import sys
from pathlib import Path

import llmexp.registry
from llmexp.launch import host_memory
from llmexp.launch.nodes.join import join
from llmexp.launch.nodes.place import Place

sys.path.append(str(Path(__file__).parents[1] / "engines"))
llmexp.registry.ENGINES["scripted"] = "scripted:ENGINE"
if len(sys.argv) > 4:
    held_bytes = int(sys.argv[4])
    host_memory.host_memory_bytes, host_memory.host_memory_left_bytes = lambda: 2**34, lambda: 2**20
    host_memory.held_bytes = lambda process: held_bytes
join(Place(int(sys.argv[1]), 2, "127.0.0.1", int(sys.argv[2])), Path(sys.argv[3]))
