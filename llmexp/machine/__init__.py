"""The machine's hardware and its load: processor, memory, GPUs, energy and processes.

No other package asks the system for these, and nothing here imports torch.
"""
