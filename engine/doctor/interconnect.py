"""Finds an IOMMU that translates addresses, which disturbs copies between GPUs without NVLink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..telemetry import limits
from .finding import Finding
from .gpus import usable
from .nvml_query import NvmlAnswers

_TRANSLATES = "DMA"  # the type of an IOMMU group in the kernel: DMA, DMA-FQ; "identity" passes addresses through


def findings(seen: NvmlAnswers, bus: Sequence[str]) -> Iterator[Finding]:
    """A warning for several GPUs that copy to each other over PCIe behind an IOMMU."""
    there = [gpu for gpu in seen.gpus if usable(gpu)]
    linked = all((gpu.get("nvlinks") or (0, 0))[0] for gpu in there)
    asked = all("compute_mode" in gpu for gpu in there)
    if len(there) < 2 or linked or not asked or not any(_translated(address) for address in bus):
        return
    what = "the IOMMU translates the GPUs' addresses: copies between them without NVLink can be slow, wrong, or hang"
    yield Finding("warning", "GPU", what, "boot with iommu=pt, or set NCCL_P2P_DISABLE=1 (slower, but safe)")


def _translated(address: str) -> bool:
    try:
        kind = (limits.ROOT / "sys/bus/pci/devices" / address / "iommu_group/type").read_text()
    except OSError:
        return False
    return kind.startswith(_TRANSLATES)
