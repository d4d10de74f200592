"""This package measures inside the ranks: clocks, step samples, memory, traces. It observes and decides nothing."""
