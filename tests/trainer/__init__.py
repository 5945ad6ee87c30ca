"""The trainer's parts, with real TensorFlow on the CPU."""
