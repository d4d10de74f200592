"""The engines of task=serve: how each one's server is started, asked and told what to do."""
