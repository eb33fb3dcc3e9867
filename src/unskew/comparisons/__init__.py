"""Grids of runs: run in parallel, summarised in one table, with the method that leads."""
