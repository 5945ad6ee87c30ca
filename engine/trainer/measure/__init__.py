"""Measures the training: step times, phases, FLOPs, the health of the model, profiles."""
