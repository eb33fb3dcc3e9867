"""Recipes included in the package."""
