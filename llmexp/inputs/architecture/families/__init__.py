"""Readers of config.json, by the families' `model_type` in transformers."""
