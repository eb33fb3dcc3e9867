"""One file per method; a file here registers itself."""
