"""The paper that this program's experiments repeat, arXiv 2311.03687: a published reference that reports compare with.

`reference.py` is what the rest of the program asks, by `llmexp.registry`; nothing outside of this room imports it.
"""
