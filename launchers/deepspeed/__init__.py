"""engine=deepspeed: engine.py plans a run, build.py compiles what its ranks load, worker.py is a rank's program."""

# Names the library that the driver has built for the ranks.
OP_LIBRARY_VARIABLE = "LLMEXP_DEEPSPEED_OP"
# The op that reads and writes files, and the one that it is linked against.
DISK_OP, BESIDE_DISK_OP = "async_io", "pin_memory"
