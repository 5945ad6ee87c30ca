"""Data: where samples come from (sources, files, synthetic) and how they become batches (pipeline)."""
