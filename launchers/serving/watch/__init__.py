"""What a server and its machine do meanwhile: a process of its own reads metrics, memory, processors and GPUs."""
