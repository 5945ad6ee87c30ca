"""Readings of the GPUs and the host: each figure is a value, or a reason why there is none."""
