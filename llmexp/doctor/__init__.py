"""Checks of what would stop or disturb a measurement on this machine; they start nothing and import nothing heavy."""
