"""Figures of the report: frames in, a matplotlib Figure out. One unit of a figure is one pixel of the page."""
