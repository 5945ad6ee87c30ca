"""Runs side by side: what differs, by how much, and what cannot be compared."""
