"""One HTML page about any finished runs: the finding, the experiment, the costs."""
