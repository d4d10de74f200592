"""What runs are given, read before they start and by their ranks: a model's shape, a checkpoint, files of records."""
