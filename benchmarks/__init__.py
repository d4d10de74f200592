"""The program's own cost. `make bench` measures all of it and prints one table; docs/benchmarks.md keeps the figures."""
