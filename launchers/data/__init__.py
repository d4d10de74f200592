"""The data of the ranks: from texts and records to tokens, and to the passes of each step."""
