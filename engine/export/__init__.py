"""Exports options as a plain TensorFlow script that trains the same model without gputui."""
