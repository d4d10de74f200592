"""Which configuration trains, fine-tunes or serves a language model best on this hardware, measured."""

__version__ = "0.1.0"
