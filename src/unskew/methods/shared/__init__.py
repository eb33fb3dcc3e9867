"""Formulas that several methods use; nothing here registers itself."""
