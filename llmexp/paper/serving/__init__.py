"""What stands beside served loads: tables X and XI, and what the text says of figures 6 to 10."""
