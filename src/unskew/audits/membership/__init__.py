"""Membership inference: was this row trained on? Scores from a model or an update, and their ROC."""
