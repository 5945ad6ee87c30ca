"""Followers: figures of a run that leave it while it goes on."""
