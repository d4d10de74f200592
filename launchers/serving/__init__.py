"""The load client of task=serve, which runs in the rank's process beside the server that it started; no torch here."""
