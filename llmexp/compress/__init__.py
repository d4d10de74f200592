"""The task compress: a trained model made smaller, and how well it still speaks."""
