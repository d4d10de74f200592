"""Prompts that a tokenizer of transformers has a part in: real texts, and random words of a served checkpoint."""
