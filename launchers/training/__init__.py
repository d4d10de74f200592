"""The measured part of a training rank, the same for every engine: steps, state, and saved weights."""
