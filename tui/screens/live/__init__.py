"""The live view of a run, and its diagnosis."""
