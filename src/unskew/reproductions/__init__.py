"""Rerun the papers' tables and figures and compare them with the printed numbers."""
