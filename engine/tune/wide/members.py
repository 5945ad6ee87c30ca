"""The members of a study: which machines may share one, as speeds of different machines, versions or presets cannot be
compared, and which member has ended without reporting it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from ... import checks, units
from ...job.machine_gpus import Machine
from ...proof.process import processor
from ...proof.request import Request
from ...system.identity import Place, Process
from ...trials.search_record import Limits

# The properties that all members of a study have in common, and their names for the user.
NAMES = {
    "gpus": "GPUs", "processor": "processor", "cpus": "CPUs", "tensorflow": "TensorFlow", "preset": "preset",
    "only": "--only", "leave": "--leave", "memory_bytes": "--memory-gb", "largest_batch": "--largest-batch",
    "precisions": "--precision", "seconds": "measured seconds of a trial",
}  # fmt: skip
LATE_SECONDS = 120.0  # clocks of machines may differ by this before a member counts as ended


def common(request: Request, machine: Machine, seconds: float) -> dict[str, Any]:
    """Return the properties that all members of a study must have in common; `seconds` is that of a trial."""
    limits, options = request.search or Limits(), request.baseline().options
    return {
        "gpus": [gpu.name for gpu in checks.visible_gpus(options, machine)],
        "processor": processor(),
        "cpus": machine.cpus,
        "tensorflow": _version("tensorflow"),
        "preset": _digest(asdict(options)),
        "only": sorted(limits.only),
        "leave": sorted(limits.leave),
        "memory_bytes": limits.memory_bytes,
        "largest_batch": limits.largest_batch,
        "precisions": sorted(limits.precisions) if limits.precisions else None,
        "seconds": seconds,
    }


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the first property of `common` in which two members differ, in words. Empty if they differ in none."""
    for key, name in NAMES.items():
        if there.get(key) != here[key]:
            if key == "preset":
                return "another preset, or other settings of it"
            return f"other {name} (there {_value_text(there.get(key))}, here {_value_text(here[key])})"
    return ""


def _value_text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        counts = {str(item): list(value).count(item) for item in value}
        return ", ".join(item if count == 1 else f"{count} x {item}" for item, count in counts.items()) or "none"
    return "none" if value is None else units.count(value) if isinstance(value, int) else str(value)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:16]


# ---- who measures a trial --------------------------------------------------------------------------


def name_of(folder: Path) -> str:
    """Return the name of a search in a study, which stays the same if it is resumed: the host and its folder."""
    return f"{Place.here().host}:{folder}"


def measuring(folder: Path, most_seconds: float) -> dict[str, Any]:
    """Return the entries that name the search, its process, and the latest time at which its present trial ends."""
    process = Process.current()
    place = process.place.as_fields() if process.place else {}
    return {"search": name_of(folder), "until_t": time.time() + most_seconds, **process.as_fields(), **place}


def has_ended(member: Mapping[str, Any]) -> bool:
    """Return True if the member with these entries no longer measures its trial: here its process decides, elsewhere
    the latest time of the trial's end plus LATE_SECONDS.
    """
    process = Process.read(member)
    if process is not None and process.place is not None and process.place.is_here:
        return not process.alive()
    until_t = member.get("until_t")
    return isinstance(until_t, (int, float)) and time.time() > until_t + LATE_SECONDS
