"""Options as a plain TensorFlow script that trains the same without gputui."""
