"""Reads one run into a frozen snapshot: its phases, epochs, GPUs and figures over time, from its events and its log."""
