"""Hydra finds sweepers only below hydra_plugins/."""
