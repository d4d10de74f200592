"""The program's own cost: `make bench` measures it and prints one table; docs/benchmarks.md keeps the figures."""
