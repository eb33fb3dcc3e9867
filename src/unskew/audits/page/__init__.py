"""The audit page: utility, bytes and leakage of one or several runs, in one self-contained HTML file."""
