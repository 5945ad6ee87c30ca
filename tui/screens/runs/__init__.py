"""The table of runs, and what can be done with a run."""
