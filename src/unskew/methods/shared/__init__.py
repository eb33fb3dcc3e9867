"""Formulas used by several methods; no file here registers a part or a method."""
