"""What runs inside the spawned job: a room for each engine, and those that engines share. Reads plan.json, builds, loops, samples. No decisions."""
