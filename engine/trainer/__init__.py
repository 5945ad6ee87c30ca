"""The trainer process: the only package that imports TensorFlow, after its first event is written."""
