"""Hydra finds launchers only below hydra_plugins/."""
