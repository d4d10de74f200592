"""The program's own cost: `make bench` measures it and prints one table; docs/results/own-cost.md keeps the figures."""
