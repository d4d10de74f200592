"""What a torch.profiler trace says: where the time of a step goes, read without torch, in whole nanoseconds."""

import os

# OpenBLAS would start a thread for each core as numpy is imported, which costs as much CPU time as reading a trace of
# a hundred megabytes. Nothing here multiplies matrices. The variable is not left to the processes that are started.
_THREADS = "OPENBLAS_NUM_THREADS"
if _THREADS not in os.environ:
    os.environ[_THREADS] = "1"
    try:
        import numpy as np  # noqa: F401
    finally:
        del os.environ[_THREADS]
