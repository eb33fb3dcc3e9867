"""Metrics of a leak, one per file. Each returns values with the space they are in, or the reason why it was skipped."""
