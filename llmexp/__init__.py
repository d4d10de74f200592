"""llmexp measures which configuration trains, fine-tunes or serves a language model best on this hardware."""

__version__ = "0.1.0"
