"""Descriptions of methods, models and splits, for `unskew methods`, `models` and `partition`."""
