"""Where a step's time went, beside the paper's tables and figure of the same question."""
