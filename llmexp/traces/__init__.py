"""What a torch.profiler trace says: where the time of a step goes, read without torch, in whole nanoseconds."""
