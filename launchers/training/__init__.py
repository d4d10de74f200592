"""The measured part of a training rank, the same for every engine: its steps, the state that they hold, the weights that they leave."""
