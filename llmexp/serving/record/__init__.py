"""What the ranks of a served run write into its folder: requests, what the server told, summaries, a profiled load."""
