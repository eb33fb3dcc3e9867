"""The papers' tables and figures, played again and laid beside the printed numbers."""
