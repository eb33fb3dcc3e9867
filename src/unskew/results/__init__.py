"""The results of a run: tables, a folder, a summary."""
