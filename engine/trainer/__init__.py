"""The trainer process: the only package that imports TensorFlow, and never before its entry point asks."""
