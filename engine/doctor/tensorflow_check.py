"""The deep examination: imports TensorFlow in a separate process, which may crash or hang, and gets the GPUs that it
sees; its log has the likely reason if it sees fewer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from ..finding import Finding
from ..interpreter import installed
from ..job.machine_gpus import visible
from . import libraries
from .gpu_findings import all_gpus
from .libraries import NO_DEVICE, Child
from .nvml_query import NvmlAnswers

ABOUT = "TensorFlow"
PROGRAM = """
import gc, json
gc.disable()  # the import takes a fifth less time
import tensorflow as tf
found = tf.config.list_physical_devices("GPU")
details = [tf.config.experimental.get_device_details(gpu) for gpu in found]
print("\\n" + json.dumps({"version": tf.__version__, "gpus": [one.get("device_name", "GPU") for one in details]}))
"""
_TELLING = (  # what the log has, what that means, and what to do: nothing, if a TensorFlow with CUDA is needed
    (r"Could not load dynamic library '([^']+)'", "the library {} cannot be loaded", ""),
    (r"Cannot dlopen some GPU libraries", "CUDA libraries are missing", ""),
    (
        r"libcuda\.so\.1: cannot open|Could not find cuda drivers|UNKNOWN ERROR \(303\)",
        "libcuda.so.1 cannot be loaded",
        "install the compute part of the driver; start a container with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    (r"no CUDA-capable device is detected", NO_DEVICE.what, NO_DEVICE.remedy),
    (
        r"cuInit: (?:INTERNAL: |CUDA error: |Failed call to cuInit: )*([^\n]+)",
        "the CUDA driver refuses: {}",
        NO_DEVICE.remedy,
    ),
    (
        r"Ignoring visible gpu device.*?(compute capability [\d.]+)",
        "TensorFlow ignores a GPU: {}",
        "leave it out with device.visible",
    ),
)


def started(python: str) -> Child:
    """A process that imports TensorFlow and prints its GPUs; it logs why it does not use one."""
    return Child(PROGRAM, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TF_CPP_MIN_LOG_LEVEL": "0"}, python=python)


def findings(child: Child, seen: NvmlAnswers, deadline: float) -> Iterator[Finding]:
    """TensorFlow cannot be imported, or does not see the GPUs that NVML sees. `child` is ended at the deadline."""
    output = child.output(deadline)
    if output is None:
        what = f"TensorFlow could not be imported within {child.seconds:.0f} s"
        remedy = "the disk may be slow or the driver may hang; try: python -c 'import tensorflow'"
        yield Finding("warning", ABOUT, what, remedy)
        return
    try:
        answer = json.loads(output.stdout.strip().splitlines()[-1])
        version, names = answer["version"], answer["gpus"]
    except (ValueError, IndexError, TypeError, KeyError):
        lines = [line.strip() for line in output.stderr.splitlines() if line.strip()]
        why = lines[-1][:200] if lines else f"return code {output.returncode}"
        remedy = "python -c 'import tensorflow' shows the full error; reinstalling TensorFlow may help"
        yield Finding("error", ABOUT, f"TensorFlow cannot be imported: {why}", remedy)
        return
    yield Finding("ok", ABOUT, f"TensorFlow {version} can be imported ({child.seconds:.1f} s)")
    yield _compared(seen, names, output.stderr)


def _compared(seen: NvmlAnswers, names: list[str], log: str) -> Finding:
    if not seen.count:
        if names:
            what = f"TensorFlow sees {len(names)} GPU(s), but the driver gives no readings"
            return Finding("warning", ABOUT, what, f"training works, but without GPU readings: {seen.reason}")
        return Finding("ok", ABOUT, "TensorFlow trains on the CPU")
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = [gpu for gpu in all_gpus(seen) if gpu.usable]
    usable, partitioned = {gpu.index for gpu in there}, any(gpu.instances for gpu in there)
    due = sum(gpu.index in usable for gpu in visible(chosen, all_gpus(seen)))
    if len(names) != due and not (partitioned and len(names) > due):
        what = f"the driver shows {len(there)} GPU(s), but TensorFlow sees {len(names)}"
        if due != len(there):
            should = f"of which TensorFlow should see {due}, but it sees {len(names)}"
            what = f"the driver shows {len(there)} GPU(s), {should}"
        reason = likely(log, seen.driver)
        message = f"{what}: {reason.what}" if reason else what
        remedy = (reason or libraries.filled(NO_DEVICE, "")).remedy
        return Finding("warning" if names else "error", ABOUT, message, remedy)
    if len(names) == len(there) and not partitioned:
        return Finding("ok", ABOUT, f"TensorFlow sees the same {len(names)} GPU(s) as the driver")
    what = f"TensorFlow sees {len(names)} of the driver's {len(there)} GPU(s)"
    if chosen is not None:
        return Finding("note", ABOUT, f"{what}: CUDA_VISIBLE_DEVICES is {chosen!r}", "unset it to use all of them")
    return Finding("note", ABOUT, f"{what}: with MIG it uses one instance", "name one with device.visible")


def likely(log: str, driver: str) -> Finding | None:
    """The reason that TensorFlow has logged for not using a GPU, with the remedy."""
    if libraries.cause_named_in(log):
        return libraries.cause_of(log, driver)
    for pattern, words, remedy in _TELLING:
        if match := re.search(pattern, log):
            cause = Finding("error", ABOUT, words.format(*match.groups()), remedy or installed.with_cuda())
            return libraries.filled(cause, driver)
    return None
