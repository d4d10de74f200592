"""The folder of a model that a server is to load: random weights, a tokenizer, adapters, or a file of llama.cpp."""
