"""The audit's page: utility, bytes and leakage of one or many runs, in one HTML file that needs nothing else."""
