"""This package turns a validated configuration into a frozen plan of degrees, memory, native configuration and command.

It needs no torch and no GPU.
"""
