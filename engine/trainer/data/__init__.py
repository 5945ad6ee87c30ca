"""Data: where samples come from (source, files, named) and how they become batches (pipeline)."""
