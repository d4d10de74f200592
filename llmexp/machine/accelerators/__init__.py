"""Which accelerators this machine has: `here` answers for every vendor, and no other room asks a vendor's tool.

`nvidia` and `amd` read the tools that list GPUs, `nvml` and `amd_board` the libraries that read their sensors.
What concerns AMD's GPUs is tested with answers of its tools and was never run on one.
"""
