"""Used inside the ranks: clocks, step samples, memory, traces. Nothing here decides; it observes."""
