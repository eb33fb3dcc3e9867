"""One HTML page over any runs: what was found, on what, at which cost."""
