"""Saves everything that changes while a model trains, so that a run is resumed exactly."""
