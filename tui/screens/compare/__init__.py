"""Runs side by side: the table of their options and figures, and their curves."""
