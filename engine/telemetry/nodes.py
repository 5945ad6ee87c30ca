"""Looks for the driver's device nodes: where they exist, CUDA may work even if NVML cannot be read."""

from __future__ import annotations

from . import limits

# Of the driver for data centres and desktops, of WSL, and of a Jetson.
_NODES = ("dev/nvidiactl", "dev/nvidia[0-9]*", "dev/dxg", "dev/nvhost-gpu")


def there() -> bool:
    """Whether this machine or container has the device node of a GPU."""
    return any(any(limits.ROOT.glob(node)) for node in _NODES)
