"""Grids of runs: played side by side, put into one table, and told who is ahead."""
