"""Readings of NVIDIA GPUs by NVML, the management library of the driver."""
