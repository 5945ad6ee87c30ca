"""The table of runs, the actions on runs, and the watch over running runs."""
