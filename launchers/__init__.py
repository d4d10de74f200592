"""What runs inside the spawned job, one module an engine: read plan.json, build, loop, sample. No decisions."""
