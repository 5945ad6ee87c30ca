"""The engine's parts without TensorFlow."""
