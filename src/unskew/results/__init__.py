"""What a run leaves behind: tables, a folder, a summary."""
