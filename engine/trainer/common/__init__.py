"""Shared by all parts of the trainer: errors, requests to stop, the end of the process."""
