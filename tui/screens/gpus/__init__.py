"""The GPUs and the host as they are now, and the processes that use the GPUs."""
