"""Looks for the driver's device nodes: if they exist, CUDA may work even if NVML cannot be read."""

from __future__ import annotations

from . import limits

# Of the driver for data centres and desktops, and of a Jetson.
_NODES = ("dev/nvidiactl", "dev/nvidia[0-9]*", "dev/nvhost-gpu")
_UVM = "dev/nvidia-uvm"
# WSL has this node for GPUs of any maker; Windows' NVIDIA driver adds its libcuda.so.1 (NVIDIA's "CUDA on WSL" guide).
WSL_LIBRARIES = "usr/lib/wsl/lib"
_WSL = ("dev/dxg", f"{WSL_LIBRARIES}/libcuda.so.1")


def there() -> bool:
    """Whether this machine or container has the device node of a GPU."""
    if all((limits.ROOT / name).exists() for name in _WSL):
        return True
    return any(any(limits.ROOT.glob(node)) for node in _NODES)


def lacks_unified_memory() -> bool:
    """Whether the driver's nodes are there without that of nvidia_uvm, which CUDA needs."""
    return any(limits.ROOT.glob(_NODES[0])) and not (limits.ROOT / _UVM).exists()
