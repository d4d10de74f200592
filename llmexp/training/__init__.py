"""Pre-training and fine-tuning: how a run is planned, what its metrics are, and how a report shows it."""
