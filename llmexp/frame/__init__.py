"""Results as tables of pandas, for notebooks: `llmexp.load`, and `llmexp.columns` for what a column means."""
