"""Attention functions of llmexp's own, and the ways to divide sequences over ranks."""
