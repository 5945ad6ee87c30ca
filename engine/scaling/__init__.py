"""Measures how the speed of a training grows with the number of its replicas."""
