"""A chart as rows of characters: its curves, scales, axes, legend, cursor and zoom."""
