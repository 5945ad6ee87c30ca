"""Searches for the fastest settings of a training that this machine allows, and proves the gain."""
