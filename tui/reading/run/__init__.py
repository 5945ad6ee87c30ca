"""Reads one run into a frozen snapshot: events and log in, figures over time, phases, epochs and GPUs out."""
