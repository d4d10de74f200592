"""From a plan to a result on this node: pre-flight, spawn, watch, classify the ending, collect the output.

The package never imports torch.
"""
