"""Attention that llmexp brings itself: its kernels, and how sequences are cut over ranks."""
