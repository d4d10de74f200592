"""What a transformers model consists of, read from its config.json by kind of layer, without torch."""
