"""From a plan to a result on this node: pre-flight, spawn, watch, classify how it ended, collect what it left. Never imports torch."""
