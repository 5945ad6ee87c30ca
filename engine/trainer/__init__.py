"""The trainer process, the only package that imports TensorFlow."""
