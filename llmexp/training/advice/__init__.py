"""What can be chosen for a training: methods, engines, layouts, batches, and what changes its mathematics."""
