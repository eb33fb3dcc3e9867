"""Metrics of a leak, one idea per file. A value always comes with the space it was taken in, or why there is none."""
