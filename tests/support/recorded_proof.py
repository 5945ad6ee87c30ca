"""A diagnosis and a proof as the engine leaves them, written by hand: for the screens that show them."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

from tests.doors.engine import Process, Proof, presets
from tests.doors.engine import identity_Place as Place
from tests.support import recorded

DIAGNOSIS: dict[str, Any] = {
    "verdict": "input_bound",
    "sentence": "Input-bound: steps wait 62 % of their time for input, mostly in prepare",
    "confidence": 0.93,
    "steps": 812,
    "evidence": [
        {
            "signal": "input_wait",
            "value": 0.62,
            "unit": "share",
            "threshold": 0.2,
            "text": "steps wait 62 % of their time for input",
            "source": "XProf (5 and 20 % of the step)",
        },
        {
            "signal": "stage",
            "value": 20.6,
            "unit": "ms",
            "threshold": None,
            "text": "its slowest stage is prepare: 20.6 ms per batch with 2 calls at a time",
            "source": "measured",
        },
        {
            "signal": "buffer_fill",
            "value": 0.0,
            "unit": "share",
            "threshold": None,
            "text": "the prefetch buffer is 0 % full",
            "source": "measured",
        },
        {
            "signal": "trainer_cores",
            "value": 1.7,
            "unit": "cores",
            "threshold": None,
            "text": "the training uses 1.7 of 16 CPUs",
            "source": "measured",
        },
    ],
    "others": ["python_overhead"],
    "remedies": [
        {
            "changes": {"input.cache": "memory"},
            "step": "input",
            "expected_gain": 2.6,
            "changes_learning": False,
            "reason": "the prepared samples fit in memory four times: read and prepare them once",
        },
        {
            "changes": {"input.parallel_calls": "auto"},
            "step": "input",
            "expected_gain": 2.2,
            "changes_learning": False,
            "reason": "one call at a time prepares the samples, and 14 of 16 CPUs are idle",
        },
        {
            "changes": {"input.batch_size": 256},
            "step": "device",
            "expected_gain": None,
            "changes_learning": True,
            "reason": "larger batches cost less per sample",
        },
        {
            "changes": {},
            "step": "device",
            "expected_gain": None,
            "changes_learning": False,
            "reason": "look after \x1b[31mthe disk[/red]",
        },
    ],
}
STAGES: dict[str, Any] = {
    "stages": [
        {"name": "read", "op": "TensorSlice", "ms_per_batch": 0.2, "parallelism": None},
        {"name": "shuffle", "op": "ShuffleAndRepeat", "ms_per_batch": 1.1, "parallelism": None},
        {"name": "prepare", "op": "ParallelMapV2", "ms_per_batch": 41.2, "parallelism": 2},
        {"name": "batch", "op": "ParallelBatch", "ms_per_batch": 3.4, "parallelism": 2},
        {"name": "augment", "op": "MapV2", "ms_per_batch": None, "parallelism": None},
    ],
    "buffer_fill": 0.04,
}
HEALTHY: dict[str, Any] = {
    "verdict": "healthy",
    "sentence": "Healthy: computing takes 97 % of the step; gputui has no further option to try",
    "confidence": 0.7,
    "steps": 4000,
    "evidence": [
        {
            "signal": "compute_share",
            "value": 0.97,
            "unit": "share",
            "threshold": None,
            "text": "computing takes 97 % of the step",
            "source": "measured",
        },
    ],
}


def trials(*speeds: tuple[str, float | None], first: int = 1, outcome: str = "ok") -> list[dict[str, Any]]:
    """Pairs of trials from (side, samples a second); None stands for one that ended with `outcome`."""
    rows = []
    for number, (side, speed) in enumerate(speeds):
        good = speed is not None
        rows.append(
            {
                "side": side,
                "repeat": number // 2 + 1,
                "run": f"{first + number:02}-{side}",
                "outcome": "ok" if good else outcome,
                "samples_per_second": speed,
                "step_ms": 64_000 / speed if speed else None,
                "input_wait": 0.62 if good else None,
                "python_share": None,
                "peak_memory_bytes": int(1.4 * recorded.GIB) if good else None,
                "first_step_memory_bytes": None,
                "gpu_busy_mean": 0.31 if good else None,
                "gpu_power_mean_w": None,
                "sm_clock_mean_mhz": None,
                "slowed_by_power": None,
                "slowed_by_heat": None,
                "sample_energy_j": None,
                "gpu_speed": 1.0,
                "sample_energy_estimated_j": None,
                "loss_at_samples": None,
                "seconds": 12.4,
                "error": None if good else "out of memory at batch size 256: \x1b[2Jkilled",
                "disturbed": "",
                "key": "",
                "peak_process_bytes": None,
                "peak_address_space_bytes": None,
                "replicas": 1,
                "global_batch_size": 64,
            }
        )
    return rows


CACHE = trials(("a", 411.0), ("b", 1466.0), ("b", 1502.0), ("a", 414.0), ("a", 412.0), ("b", 1471.0))
XLA = trials(("a", 1480.0), ("b", 1302.0), ("b", 1466.0), ("a", 1491.0), ("a", 1475.0), ("b", 1331.0), first=7)
BATCH = trials(("a", 1479.0), ("b", None), first=13, outcome="oom")
PYTHON = trials(("a", 1477.0), ("b", 1533.0), ("b", 1536.0), ("a", 1482.0), ("a", 1479.0), ("b", 1529.0), first=15)
PROOF: dict[str, Any] = {
    "id": "20260921-130000-input-heavy",
    "kind": "loop",
    "preset_name": "input-heavy",
    "repeats": 3,
    "measure_seconds": 5.0,
    "preset_before": "schema_version: 1\n",
    "limit_seconds": None,
    "state": "done",
    "pid": None,
    "start_ticks": None,
    "host": None,
    "boot_id": None,
    "pid_namespace": None,
    "started_t": recorded.BEGAN,
    "started_mark": 0.0,
    "seconds": 262.0,
    "budget_seconds": None,
    "budget_most_seconds": None,
    "doing": "ended",
    "machine": {},
    "versions": {},
    "baseline_trials": [],
    "ablation": None,
    "profile_trial": None,
    "profile": None,
    "profile_missing": "",
    "diagnosis": DIAGNOSIS,
    "comparisons": [
        {
            "changes": {"input.cache": "memory"},
            "reason": "read once",
            "expected_gain": 3.9,
            "step": "input",
            "verdict_before": "input_bound",
            "trials": CACHE,
            "gain": 2.57,
            "spread": 0.037,
            "decision": "kept",
            "why": "+257.0 %, spread of the repeats 3.7 %",
            "learning": None,
        },
        {
            "changes": {"compile.xla": True},
            "reason": "joins operations",
            "expected_gain": None,
            "step": "xla",
            "verdict_before": "compute_bound",
            "trials": XLA,
            "gain": -0.098,
            "spread": 0.021,
            "decision": "rejected",
            "why": "-9.8 %, spread of the repeats 2.1 %",
            "learning": None,
        },
        {
            "changes": {"input.batch_size": 256},
            "reason": "fills the device",
            "expected_gain": 1.3,
            "step": "device",
            "verdict_before": "compute_bound",
            "trials": BATCH,
            "gain": None,
            "spread": None,
            "decision": "failed",
            "why": "oom: out of memory at batch size 256",
            "learning": None,
        },
        {
            "changes": {"compile.steps_per_execution": 16},
            "reason": "less Python",
            "expected_gain": 1.05,
            "step": "device",
            "verdict_before": "python_overhead",
            "trials": PYTHON,
            "gain": 0.037,
            "spread": 0.004,
            "decision": "kept",
            "why": "+3.7 %, spread of the repeats 0.4 %",
            "learning": {
                "note": "the batch size changes what is learnt",
                "samples": 4096,
                "loss_a": 0.61,
                "loss_b": 0.72,
            },
        },
    ],
    "before": {
        "samples_per_second": 412.0,
        "step_ms": 155.0,
        "input_wait": 0.62,
        "peak_memory_bytes": int(1.4 * recorded.GIB),
        "gpu_busy_mean": 0.31,
    },
    "after": {
        "samples_per_second": 1533.0,
        "step_ms": 41.7,
        "input_wait": 0.03,
        "peak_memory_bytes": int(1.5 * recorded.GIB),
        "gpu_busy_mean": 0.93,
    },
    "gain_total": 3.7,
    "final_verdict": {"verdict": "healthy", "sentence": HEALTHY["sentence"]},
    "advice": [],
    "preset_after": None,
    "changes_kept": {"input.cache": "memory", "compile.steps_per_execution": 16},
    "search": None,
    "scaling": None,
    "rate": None,
    "sweep": None,
    "earlier": [],
    "ended_because": "no remedy is left",
    "error": None,
}


def write_proof(home: Path, name: str = PROOF["id"], **changes: Any) -> Proof:
    """A proof folder under `home`; give fields of proof.json by name."""
    after = presets.defaults(("input.cache=memory", "compile.steps_per_execution=16")).to_yaml()
    data = copy.deepcopy(PROOF) | {"id": name, "preset_after": after} | changes
    proof = Proof(home / "proofs" / name)
    proof.path.mkdir(parents=True)
    (proof.path / "request.json").write_text("{}")
    rewrite(proof, data)
    return proof


def rewrite(proof: Proof, data: dict[str, Any]) -> None:
    """As the proof's process does it."""
    (proof.path / "proof.json").write_text(json.dumps(data))


def running(**changes: Any) -> dict[str, Any]:
    """Fields of a proof whose process seems to be this one, in the middle of its second comparison."""
    pid = os.getpid()
    second = copy.deepcopy(PROOF["comparisons"][1]) | {"decision": "running", "gain": None, "spread": None, "why": ""}
    second["trials"] = second["trials"][:3]
    return {
        "state": "running",
        **Place.here().as_fields(),
        **Process.of(pid).as_fields(),
        "budget_seconds": 240.0,
        "doing": "repeat 2 of 3: without xla=true",
        "comparisons": [PROOF["comparisons"][0], second],
        "final_verdict": None,
        "ended_because": "",
        "gain_total": 3.57,
        "changes_kept": {"input.cache": "memory"},
        "after": PROOF["after"] | {"samples_per_second": 1471.0},
    } | changes
