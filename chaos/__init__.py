"""The fault suite: whole sweeps of quick runs, broken at random points, and what must hold afterwards.

surroundings   an engine of quick ranks, installed beside llmexp; engine, ranks, broken_files: what it runs
driver         `python -m llmexp` in a process of its own
tracker        an MLflow server, and a network to it that can be cut
disk           a filesystem of its own for the outputs, where this user may mount one
faults         what can break, by class
invariants     what must hold: after a fault, and at the end
episode        one sweep with its faults, until it is complete
"""
