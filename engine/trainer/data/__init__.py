"""Data: the sources of samples (source, files, named), and making batches of them (pipeline)."""
