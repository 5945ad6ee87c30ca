"""The search for the fastest settings."""
