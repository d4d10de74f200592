"""What `llmexp plan` and runs answer, as typed and versioned objects for programs."""
