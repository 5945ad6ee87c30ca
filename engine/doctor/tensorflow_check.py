"""The deep look: TensorFlow is imported in a process of its own, with a time limit, and asked which GPUs it sees.

Separates what TensorFlow does from what its files promise. It may crash, hang or write what it likes to its log; what
it logs about a GPU it cannot use is taken as the likely reason.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from .finding import Finding
from .gpus import Seen

LIMIT_SECONDS = 18.0
ABOUT = "TensorFlow"
PROGRAM = """
import json
import tensorflow as tf
found = tf.config.list_physical_devices("GPU")
details = [tf.config.experimental.get_device_details(gpu) for gpu in found]
print("\\n" + json.dumps({"version": tf.__version__, "gpus": [one.get("device_name", "GPU") for one in details]}))
"""
_TELLING = (
    (r"Could not load dynamic library '([^']+)'", "the library {} cannot be loaded"),
    (r"Cannot dlopen some GPU libraries", "CUDA libraries are missing"),
    (r"libcuda\.so\.1: cannot open|Could not find cuda drivers|UNKNOWN ERROR \(303\)", "libcuda.so.1 cannot be loaded"),
    (r"no CUDA-capable device is detected", "CUDA sees no device"),
    (r"cuInit: (?:INTERNAL: |CUDA error: |Failed call to cuInit: )*([^\n]+)", "the CUDA driver refuses: {}"),
    (r"Ignoring visible gpu device.*?(compute capability [\d.]+)", "TensorFlow ignores a GPU: {}"),
)


def findings(seen: Seen) -> Iterator[Finding]:
    """That TensorFlow can be imported, and sees the GPUs that NVML sees."""
    began = time.monotonic()
    try:
        done = _run()
    except (subprocess.TimeoutExpired, OSError) as fault:
        why = f"within {LIMIT_SECONDS:g} s" if isinstance(fault, subprocess.TimeoutExpired) else str(fault)
        remedy = "a slow disk or a hanging driver; try: python -c 'import tensorflow'"
        yield Finding("warning", ABOUT, f"TensorFlow could not be imported {why}", remedy)
        return
    answer = _answer(done.stdout)
    if answer is None:
        remedy = "python -c 'import tensorflow' shows the whole fault; reinstalling it may help"
        yield Finding("error", ABOUT, f"TensorFlow cannot be imported: {_last_line(done)}", remedy)
        return
    seconds = time.monotonic() - began
    yield Finding("ok", ABOUT, f"TensorFlow {answer['version']} can be imported ({seconds:.1f} s)")
    yield _compared(seen, answer["gpus"], done.stderr)


def _run() -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_SECONDS,
        stdin=subprocess.DEVNULL,
        env=environment,
        check=False,
    )


def _answer(output: str) -> dict[str, Any] | None:
    try:
        answer = json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return answer if isinstance(answer, dict) and "gpus" in answer else None


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"return code {done.returncode}"


def _compared(seen: Seen, names: list[str], log: str) -> Finding:
    if not seen.gpus:
        if names:
            what = f"TensorFlow sees {len(names)} GPU(s), the driver's readings are missing"
            return Finding("warning", ABOUT, what, f"training works, without GPU readings: {seen.reason}")
        return Finding("ok", ABOUT, "TensorFlow trains on the CPU")
    expected = sum(1 for gpu in seen.gpus if not gpu.get("missing"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if len(names) == expected:
        return Finding("ok", ABOUT, f"TensorFlow sees the same {expected} GPU(s) as the driver")
    what = f"the driver shows {expected} GPU(s), TensorFlow sees {len(names)}"
    if visible is not None:
        return Finding("note", ABOUT, f"{what}: CUDA_VISIBLE_DEVICES is {visible!r}", "unset it to use all of them")
    if any(gpu.get("mig") for gpu in seen.gpus):
        return Finding("note", ABOUT, f"{what}: with MIG it uses one instance", "name one with device.visible")
    level = "error" if not names else "warning"
    reason = _reason(log)
    return Finding(level, ABOUT, f"{what}{f': {reason}' if reason else ''}", _remedy(reason))


def _reason(log: str) -> str:
    for pattern, words in _TELLING:
        found = re.search(pattern, log)
        if found:
            return words.format(*found.groups())
    return ""


def _remedy(reason: str) -> str:
    if "librar" in reason:
        return "pip install 'tensorflow[and-cuda]'"
    return "look at the driver: nvidia-smi, ls -l /dev/nvidia*; in a container, start it with --gpus all"
