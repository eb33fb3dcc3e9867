"""One file per method; each registers its parts and its method when imported."""
