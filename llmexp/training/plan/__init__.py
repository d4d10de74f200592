"""The arithmetic of a training run: degrees, memory, FLOPs, tokens; it needs no torch and no GPU."""
