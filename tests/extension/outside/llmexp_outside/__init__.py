"""What somebody else adds to llmexp, without a fork of it."""
