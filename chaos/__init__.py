"""The fault suite: whole sweeps of quick runs are broken at random points, then checked.

surroundings   an engine of quick ranks, installed beside llmexp; engine, ranks and broken_files are its parts
driver         `python -m llmexp` in its own process
tracker        an MLflow server, and a network to it that can be cut
disk           a separate filesystem for the outputs, where this user may mount one
faults         everything that can break, by class
invariants     the conditions that must hold after a fault, and at the end
episode        one sweep with its faults, until it is complete
"""
