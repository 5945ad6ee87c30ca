"""What is drawn of GPUs, runs, charts and logs that are played from events: the rows of each, in golden/drawing/."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.conftest import Golden
from tests.contract.test_screens import arrived
from tests.doors import engine, tui
from tests.doors.tui import PLAIN, RICH
from tests.support import recorded
from tests.support.form_pilot import LARGE, SMALL
from tests.support.recorded import BEGAN, DIAGNOSIS, GIB, HEALTHY
from tests.support.tiny import Tiny, wait_for

JUDGING = ("good", "warn", "bad", "light", "moderate", "heavy")
Told = dict[str, Any]


def text(rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    """The rows as lines: a piece in a colour that judges has its name before it."""
    lines = []
    for row in rows:
        alike = groupby(row, key=lambda piece: piece[1] if piece[1] in JUDGING else "")
        pieces = ((style, "".join(piece[0] for piece in group)) for style, group in alike)
        lines.append("".join(f"<{style}>{part}" if style and part.strip() else part for style, part in pieces).rstrip())
    return "\n".join(lines).rstrip() + "\n"


def differing(shown: str, usual: str) -> str:
    """What is shown in place of usual lines, with how many of these are gone; all of it if nothing is usual."""
    old, new, lines = usual.splitlines(True), shown.splitlines(True), list[str]()
    for kind, begin, end, first, last in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if kind != "equal":
            gone = end - begin
            lines += [f"({gone} gone)\n"] * (gone != last - first) + new[first:last]
    return "".join(lines) if usual else shown


def at(t: float, type_: str, **fields: Any) -> Told:
    """An event so many seconds after the begin."""
    return {"t": BEGAN + t, "type": type_, **fields}


def played(*told: Told, clock: float | None = None) -> tui.Snapshot:
    """What is read of these lines of the event files, at the moment `clock` or the last one."""
    store = tui.Store()
    read = [engine.parsing.parse_line(json.dumps({"run": "r", **event}).encode()) for event in told]
    assert None not in read, [event for event, as_read in zip(told, read, strict=True) if as_read is None]
    store.feed(event for event in read if event is not None)
    return store.snapshot(None if clock is None else BEGAN + clock)


# ---- GPUs -------------------------------------------------------------------------------------------

FULL: Told = {
    "index": 0, "uuid": "GPU-0", "name": "NVIDIA H100 80GB HBM3", "busy": 0.93, "memory_busy": 0.41,
    "memory_used_bytes": 61 * GIB, "memory_total_bytes": 80 * GIB, "temperature_c": 64, "power_w": 578.4,
    "power_limit_w": 700.0, "energy_j": 7_200_000, "sm_clock_mhz": 1965, "max_sm_clock_mhz": 1980,
    "memory_clock_mhz": 2619, "throttle": [], "pstate": 0, "slowed_by_power_seconds": 10.0,
    "slowed_by_heat_seconds": 0.0, "sm_active": 0.85, "tensor_active": 0.45, "dram_active": 0.57,
    "pcie_rx_bytes_per_second": 1_400_000_000, "pcie_tx_bytes_per_second": 200_000_000,
    "nvlink": {"links": 18, "rx_bytes_per_second": 31 * GIB, "tx_bytes_per_second": 29 * GIB},
    "ecc_errors": {"corrected": 0, "uncorrected": 0}, "mig": None, "processes": [],
}  # fmt: skip
REFUSED = {
    "busy": "unsupported", "memory_used_bytes": "no_permission", "temperature_c": "error", "energy_j": "unsupported",
    "slowed_by_power_seconds": "unsupported", "processes": "no_permission", "nvlink": "unsupported", "mig": "error",
    "ecc_errors": "unsupported", "pcie_rx_bytes_per_second": "no_permission", "sm_active": "unsupported",
    "tensor_active": "unsupported", "dram_active": "unsupported", "memory_clock_mhz": "unsupported", "pstate": "error",
}  # fmt: skip
LOST = {"missing": "the GPU is lost (it has fallen off the bus)", "lost_since": BEGAN + 12.0, "reasons": {"*": "lost"}}
PYTHON = {"pid": 5303, "user": "ann", "name": "python", "memory_used_bytes": 40 * GIB, "own": True}
STRANGER = {"pid": 77, "user": "bob", "name": "jupy\x1bter", "memory_used_bytes": 3 * GIB, "own": False}
IDLE = {"use": 0.0, "idle_seconds": 90.0, "idle_at_least": True}
PROCESSES = [
    {"pid": 4, "hidden": "not visible from here", "memory_used_bytes": GIB}, STRANGER | IDLE,
    {"pid": 911, "user": "root", "name": "Xorg", "type": "G"} | IDLE | {"idle_seconds": 0.0},
    PYTHON | {"command": "python train.py", "use": 0.4, "idle_seconds": 0.0, "idle_at_least": False},
    {"pid": 12, "name": "sleeps", "own": False} | IDLE | {"idle_seconds": 7199.0, "idle_at_least": False},
    {"pid": 13, "user": "eve", "name": "forgotten", "own": False} | IDLE | {"idle_seconds": 7200.0},
]  # fmt: skip
INSTANCES = [
    {"uuid": "MIG-a", "memory_used_bytes": 5 * GIB, "memory_total_bytes": 20 * GIB, "processes": [STRANGER]},
    {"uuid": "MIG-b", "memory_total_bytes": 20 * GIB, "processes": [PYTHON, STRANGER]},
]
# The readings of a GPU, 10 seconds apart: what is other than in the reading before, of the first than in FULL.
GPUS: dict[str, tuple[Told, ...]] = {
    "all figures": ({},),
    "energy and slowed time": ({}, {"energy_j": 7_206_000, "slowed_by_power_seconds": 12.5}),
    "nothing is known": (dict.fromkeys(FULL) | {"index": 11, "mig": "unknown"},),
    "the driver refuses": (dict.fromkeys(REFUSED) | {"reasons": REFUSED, "mig": "unknown"},),
    "only the memory's activity": ({"sm_active": None, "tensor_active": None, "dram_active": None},),
    "no DRAM, an old driver": ({"dram_active": None, "memory_used_counts_reserved": True, "tensor_active": None},),
    "below all thresholds": ({"busy": 0.0949, "power_w": 69.9, "memory_used_bytes": 8 * GIB - 1, "temperature_c": 64},),
    "moderate": ({"busy": 0.1, "power_w": 70.0, "memory_used_bytes": 8 * GIB, "temperature_c": 65},),
    "below heavy": ({"busy": 0.74, "power_w": 524.9, "memory_used_bytes": 64 * GIB - 1, "temperature_c": 82},),
    "heavy": ({"busy": 0.75, "power_w": 525.0, "memory_used_bytes": 64 * GIB, "temperature_c": 83},),
    "throttled": ({"throttle": ["power cap", "hardware thermal"], "name": "NVIDIA GeForce RTX 4090 Laptop GPU",
                   "power_limit_w": None},),
    "slowed by all": tuple({f"slowed_by_{cause}_seconds": n * (part + 0.001) for part, cause in enumerate(
        ("heat", "board_limit", "reliability_limit", "sync_boost"))} for n in (0.0, 1.0)),
    "hardly slowed": ({}, {"slowed_by_power_seconds": 10.05}, {"slowed_by_heat_seconds": 0.2}),
    "slowed by its reasons": ({"slowed_by_power_seconds": None, "slowed_by_heat_seconds": None},
                              {"throttle": ["power cap"]}, {"throttle": ["hardware slowdown"]}),
    "memory of the host": ({"shared_with_host": True, "memory_total_bytes": None},),
    "MIG": ({"mig": INSTANCES, "busy": None, "reasons": {"busy": "unsupported"}, "processes": None},
            {"energy_j": 7_236_000}),
    "MIG without an instance": ({"mig": []},),
    "one instance": ({"mig": INSTANCES[:1], "processes": [PYTHON]},),
    "corrected errors": ({"ecc_errors": {"corrected": 12_345}},),
    "uncorrected errors": ({"ecc_errors": {"uncorrected": 2}, "clocks_set_by": ["application clocks", "a user"]},),
    "lost": ({}, LOST),
    "back": ({}, LOST, {"missing": None, "lost_since": None, "reasons": None, "energy_j": 0}, {"energy_j": 3_600}),
    "never opened": ({"missing": "no permission to read this GPU, and so long a reason that it needs two lines"},),
    "processes": ({"processes": PROCESSES},),
    "strangers beside the run": ({"processes": [STRANGER, PYTHON, {"pid": 9, "own": False}]},),
    "strangers alone": ({"processes": [STRANGER]},),
    "odd names": ({"name": "NVIDIA \x1b[31mA100", "clocks_set_by": ["a\x07b"]},),
}  # fmt: skip
LEASES = {"moderate": "free", "processes": "bob's night\x1b work since 14:05", "strangers alone": "stuck: it ended"}


def of_gpus(readings: Sequence[Told], *others: Told, clock: float | None = None) -> tui.Snapshot:
    """A training with these readings of GPU 0, each of them with the values of the one before."""
    gpu, told = dict(FULL), [at(0.0, "phase", phase="training")]
    for number, changes in enumerate(readings):
        gpu |= changes
        kept = {name: value for name, value in gpu.items() if value is not None or name in FULL}
        told.append(at(10.0 * number + 1, "gpu", gpus=[kept], interval_seconds=10.0))
    return played(*sorted((*told, *others), key=lambda event: event["t"]), clock=clock)


def test_the_cards_of_gpus(golden: Golden, not_at_utc: None) -> None:
    parts, usual = list[str](), ""
    for name, readings in GPUS.items():
        now = of_gpus(readings)
        gpu = replace(now.gpus[0], lease=LEASES.get(name, ""))
        drawn = [tui.card(gpu, now.elapsed, width, height, RICH) for width, height in ((40, 1), (100, 1), (46, 7))]
        shown = "".join(
            map(text, [*drawn, tui.gpu_details.whole(gpu, 78, 12, RICH), [[(tui.kinds([gpu], False).plain, "")]]])
        )
        parts += [f"---- {name}\n", differing(shown, usual)]
        usual = usual or shown
    golden("drawing/gpus.txt", "".join(parts))


def started(**fields: Any) -> Told:
    about = {
        "versions": {"tensorflow": "2.21.0"}, "devices": ["/device:GPU:0"], "gpus": ["GPU-0"], "replicas": 1,
        "global_batch_size": 1024, "steps_per_epoch": 100, "epochs": 3, "steps": 300, "options": {},
        "actual": {"parameters": 25_600_000},
    }  # fmt: skip
    return at(0.5, "started", **about | fields)


def host(t: float, **fields: Any) -> Told:
    about = {
        "cpu": 0.34, "memory_used_bytes": 88 * GIB, "memory_total_bytes": 512 * GIB, "engine_bytes": 36_000_000,
        "trainer_bytes": 14 * GIB, "trainer_cpu": 11.4, "io_wait": 0.02,
    }  # fmt: skip
    return at(t, "host", **about | fields)


def finished(t: float, outcome: str = "ok", **summary: Any) -> Told:
    return at(t, "finished", outcome=outcome, summary={"outcome": outcome, **summary})


def allocated(**devices: tuple[float, float]) -> Told:
    sizes = {name.replace("_", ":"): {"current_bytes": int(now * GIB), "peak_bytes": int(peak * GIB)}
             for name, (now, peak) in devices.items()}  # fmt: skip
    return at(5.0, "allocator", devices=sizes)


def several(*changes: Told) -> Told:
    """One reading of as many GPUs."""
    return at(2.0, "gpu", gpus=[FULL | {"index": n, "uuid": f"GPU-{n}"} | one for n, one in enumerate(changes)])


WORKED: tuple[Told, ...] = (
    {"busy": 0.8, "throttle": ["power cap"]}, {"busy": 0.6, "energy_j": 7_203_600, "memory_used_bytes": 70 * GIB},
    {"busy": 0.2, "sm_clock_mhz": 600, "temperature_c": 50, "memory_used_bytes": 20 * GIB},
)  # fmt: skip
# The GPUs of runs: readings of GPU 0 and other events.
MACHINES: dict[str, tuple[Sequence[Told], Sequence[Told]]] = {
    "a GPU of the run": (({}, {}), (started(), allocated(GPU_0=(38.2, 57.9)), host(3.0))),
    "two logical devices": (({},), (started(options={"device": {"logical_devices": 2}}), host(3.0),
                                    allocated(GPU_0=(10, 20), GPU_1=(1, 2), GPU_2=(7, 8)))),
    "of an ended run": (WORKED, (started(), host(4.0), host(8.0, cpu=0.9, trainer_cpu=1.4), finished(40.0),
                                 allocated(GPU_0=(38.2, 57.9)))),
    "ended before it worked": ((WORKED[2],), (finished(40.0, "error"), host(4.0, trainer_bytes=None), started())),
    "resumed": (WORKED, (started(), host(3.0, cpu=0.9), finished(12.0, "stopped"), at(13.0, "phase", phase="importing"),
                         at(14.0, "phase", phase="training"), host(15.0, cpu=0.5), finished(40.0))),
    "evaluated meanwhile": (WORKED, (started(), at(12.0, "phase", phase="evaluating"), host(13.0, cpu=1.0),
                                     at(19.0, "phase", phase="training"), finished(40.0))),
    "two of eight train": ((), (started(gpus=["GPU-6", "GPU-2"]), several(
        {}, {}, {"busy": 0.5, "power_w": 300.0}, {}, LOST, {"busy": None, "name": None}, {"busy": 0.7}, {}),
        allocated(GPU_0=(6, 7), GPU_1=(2, 3)))),
    "visible by number": ((), (started(gpus=[], options={"device": {"visible": [1]}}), several({}, {}),
                               allocated(GPU_0=(6, 7)))),
    "no driver": ((), (started(devices=["/device:CPU:0"], gpus=[]), host(3.0, io_wait=None), allocated(CPU_0=(2, 3)),
                       at(1.0, "gpu", gpus=[], missing="no NVIDIA driver on this machine (libnvidia-ml.so.1 is "
                          "missing)"))),
    "no readings on a GPU": ((), (started(), at(1.0, "gpu", gpus=[], missing="no permission"), host(3.0))),
    "first none, then one": (({},), (at(0.2, "gpu", gpus=[], missing="no driver yet"), host(3.0))),
    "CPU, ended": ((), (started(devices=["/device:CPU:0"]), host(3.0), finished(9.0), allocated(CPU_0=(2, 3)))),
    "ended before a reading while it trained": ((), (at(1.0, "phase", phase="ended"), host(3.0), finished(9.0))),
    "nothing yet": ((), ()),
}  # fmt: skip


def test_the_devices_of_a_run(golden: Golden, not_at_utc: None) -> None:
    parts = []
    for name, (readings, others) in MACHINES.items():
        now = of_gpus(readings, *others)
        drawn = [tui.card(gpu, now.elapsed, 60, 1 if now.gpus[1:] else 8, RICH, True) for gpu in now.gpus]
        drawn += [[tui.gpu_details.host_line(now, width, RICH, alone)] for width, alone in ((110, False), (60, True))]
        if not now.gpus:
            drawn += [tui.gpu_details.no_gpu(now, width) for width in (60, 24)] + [
                tui.gpu_details.host(now, 80, 4, RICH)
            ]
        charted = [*tui.charts.plots(now), *(tui.charts.of_machine(now, 1, tui.Charts()) if now.gpus[1:] else ())]
        drawn += [[tui.title(plot, 70, RICH)] for plot in charted if "GPU" in plot.title and plot.title[-1] in "yr"]
        parts += [f"---- {name}: {tui.kinds(now.gpus, now.outcome is not None).plain}\n", *map(text, drawn)]
    golden("drawing/devices.txt", "".join(parts))


# ---- runs -------------------------------------------------------------------------------------------


def phase(t: float, name: str, detail: str = "") -> Told:
    return at(t, "phase", phase=name, detail=detail)


COUNTS = ("step", "steps", "epoch", "epochs")  # which are absent if they are not known


def progress(t: float, step: int | None, **fields: Any) -> Told:
    about = {
        "epoch": 1, "epochs": 3, "steps": 300, "samples_per_second": 9_800.0, "step_ms_p50": 104.0,
        "step_ms_p95": 120.0, "input_wait": 0.08, "loss": 1.5, "metrics": {"accuracy": 0.5}, "eta_seconds": 65.0,
    }  # fmt: skip
    whole = {"step": step, **about, **fields}
    return at(
        t, "progress", **{name: value for name, value in whole.items() if value is not None or name not in COUNTS}
    )


def epoch(t: float, number: int, **metrics: float | None) -> Told:
    return at(t, "epoch", epoch=number, step=100 * number, seconds=10.0, metrics={"loss": 1 / number, **metrics})


def warning(number: int, **fields: Any) -> Told:
    return at(14.0, "warning", **{"kind": "input", "message": f"warning {number}", "hint": "change it"} | fields)


def best(option: str, number: int, **fields: Any) -> Told:
    about = {"option": option, "figure": "val_loss", "epoch": number, "step": 100 * number, "value": 0.5 / number}
    return at(10.0 * number + 2.05, "best", **about | fields)


BEGIN = (phase(0.0, "starting"), phase(0.4, "importing", "TensorFlow"), phase(6.5, "configuring"),
         phase(6.8, "building", "model"), started())  # fmt: skip
FIRST = (*BEGIN, phase(8.0, "compiling"), phase(12.0, "training"))
EPOCHS = (
    progress(13.0, 10, window_loss=2.0), progress(17.0, 50, window_loss=1.8), phase(22.0, "evaluating"),
    epoch(22.9, 1, accuracy=0.4, val_loss=1.2, val_accuracy=0.45), phase(23.0, "training"),
    progress(24.0, 110, epoch=2, window_loss=1.1), progress(27.0, 140, epoch=2, window_loss=0.9, loss=0.95),
)  # fmt: skip
TRAINED = (*FIRST, *EPOCHS)
SPEED: Told = {
    "samples_per_second": 9_900.0, "step_ms": {"p50": 104.0, "p95": 120.0}, "input_wait": 0.08, "steps": 300,
    "epochs": 3, "seconds": 42.0, "goodput": 0.86, "metrics": {"loss": 0.3, "accuracy": 0.9, "val_loss": 0.4},
}  # fmt: skip
AGAIN = (finished(30.0, "stopped"), phase(500.0, "starting"), phase(500.3, "importing"),
           phase(506.0, "compiling"), phase(508.0, "training"), progress(509.0, 135, epoch=2, window_loss=0.85),
           progress(512.0, 170, epoch=2, window_loss=0.8))  # fmt: skip
OOM = {"kind": "out_of_memory", "message": "out of memory at batch size 512", "hint": "try input.batch_size=256"}
BAD = {"kind": "data", "message": "no such folder: /data/[red]images\nsee engine.log", "hint": "look at \x1b[1mit"}
EARLY, KEPT = best("train.early_stop", 1), best("run.keep_best", 2, files=[{"epoch": 2, "file": "best.keras"}])
UNDECIDED = at(513.0, "diagnosis", verdict="undecided", sentence="No verdict: 20 steps", confidence=0.0, steps=20)
OLD = {"verdict": "input_bound", "confidence": 0.6, "steps": 90, "sentence": "Input-bound: steps wait"}
WORKERS = [
    {"index": 0, "address": "a:1", "samples_per_second": 900.0, "step_ms_p50": 10.0, "input_wait": 0.1,
     "gpus_busy": [0.9, None]},
    {"index": 1, "address": "b:1", "missing": "its run cannot be read"},
]  # fmt: skip
# What a run has told, and the moment at which it is looked at.
RUNS: dict[str, tuple[Sequence[Told], float | None]] = {
    "not read yet": ((), None),
    "starting": (BEGIN[:1], 0.3),
    "importing": (BEGIN[:2], 5.0),
    "importing for longer than before": (BEGIN[:2], 19.0),
    "building": (BEGIN, 7.1),
    "compiling": (FIRST[:-1], 9.0),
    "XLA compiles several steps": ((*BEGIN[:-1], started(replicas=4, actual={"steps_per_execution": 8}, worker=1,
                                    workers=[{"index": 0, "address": "a:1"}, {"index": 1, "address": "b:1"}],
                                    options={"workload": {"entry": "my\x1b.py:build"}}),
                                    phase(8.0, "compiling", "XLA")), 74.0),
    "waits for workers": ((*BEGIN[:-1], phase(7.0, "configuring", "waiting for worker 1 (b:1)")), 95.0),
    "no step yet": (FIRST, 13.0),
    "trains": (TRAINED, 28.0),
    "trains with a scaled rate": ((*BEGIN[:-1], started(replicas=4, devices=["GPU:0", "GPU:1"], actual={
        "learning_rate": 0.004}, options={"train": {"learning_rate_scaling": "linear"}}), *FIRST[5:], *EPOCHS), 28.0),
    "trains without an end": ((*FIRST, progress(13.0, 1234, steps=900_000_000, mfu=0.41, eta_seconds=None)), 14.0),
    "steps are not known": ((*FIRST, progress(13.0, None, steps=None, epoch=None, epochs=None)), 14.0),
    "evaluates": ((*TRAINED, phase(28.0, "evaluating")), 31.5),
    "compiles its evaluation": ((*TRAINED, phase(28.0, "compiling", "evaluation")), 31.5),
    "compiles a smaller batch": ((*TRAINED, phase(28.0, "compiling", "smaller batch"), phase(30.0, "training"),
                                  phase(31.0, "saving", "checkpoint"), phase(32.0, "training")), 33.0),
    "one warning": ((*TRAINED, warning(1, option="input.cache")), 28.0),
    "two equal warnings, one with more to do": ((*TRAINED, warning(1), warning(1), warning(2), warning(1, hint="")),
                                                28.0),
    "a warning that names its option": ((*TRAINED, warning(1, option="input.cache", message="input.cache is off")),
                                        28.0),
    "twelve warnings": ((*TRAINED, *map(warning, range(12))), 28.0),
    "undecided": ((*TRAINED, UNDECIDED | {"t": BEGAN + 27.5}), 28.0),
    "a verdict": ((*TRAINED, at(27.5, "diagnosis", **DIAGNOSIS)), 28.0),
    "preliminary": ((*TRAINED, at(27.5, "diagnosis", **OLD | {"confidence": 0.54})), 28.0),
    "healthy, and learns nothing": ((*TRAINED, at(27.5, "diagnosis", **HEALTHY, learning="the loss is NaN")), 28.0),
    "workers": ((*TRAINED, at(27.0, "workers", workers=WORKERS, slowest=1)), 28.0),
    "not finite": ((*TRAINED, progress(30.0, 160, loss=None, window_loss=None)), 31.0),
    "done": ((*TRAINED, phase(41.9, "ended"), finished(42.0, **SPEED, mfu=0.37)), 99.0),
    "done, but it has learnt nothing": ((*TRAINED, finished(42.0, **SPEED, learning="no better than chance")), None),
    "done early by a callback": ((*TRAINED, finished(42.0, **SPEED, ended_by="callback")), None),
    "done early by early_stop": ((*TRAINED, EARLY, finished(42.0, **SPEED, ended_by="early_stop", best=[
        {name: EARLY[name] for name in ("option", "figure", "epoch", "step", "value")} | {"restores": True}])), None),
    "kept models": ((*TRAINED, EARLY, KEPT, finished(42.0, **SPEED, best=[EARLY, KEPT])), None),
    "done in its first epoch": ((*FIRST, progress(13.0, 10), finished(20.0, epochs=0, metrics={"loss": 1.5})), None),
    "out of memory": ((*TRAINED, at(28.0, "error", **OOM), finished(28.5, "oom", error=OOM)), None),
    "failed at its start": ((*BEGIN, at(7.0, "error", **BAD), phase(7.4, "ended"), finished(7.5, "error", error=BAD)),
                            None),
    "stopped": ((*TRAINED, finished(28.5, "stopped", steps=140)), None),
    "ended by its time": ((*TRAINED, finished(28.5, "timeout", steps=140)), None),
    "crashed": ((*TRAINED, finished(28.5, "crashed")), None),
    "resumed": ((*TRAINED, *AGAIN), 514.0),
    "resumed, the verdict is of before": ((*TRAINED, at(27.5, "diagnosis", **OLD), *AGAIN), 514.0),
    "resumed, and undecided so far": ((*TRAINED, at(27.5, "diagnosis", **OLD), *AGAIN, UNDECIDED), 514.0),
    "resumed, another verdict, undecided": ((*TRAINED, *AGAIN, at(512.5, "diagnosis", **OLD), UNDECIDED), 514.0),
    "resumed twice": ((*TRAINED, *AGAIN, finished(515.0, "stopped"), host(1000.0), phase(1000.0, "importing"),
                       phase(1002.0, "training"), progress(1003.0, 175, epoch=2)), 1004.0),
    "repeats an epoch": ((*TRAINED, epoch(28.0, 2, accuracy=0.6), epoch(29.0, 3, accuracy=0.7), *AGAIN[:4], {
        **started(resumed_at_step=100), "t": BEGAN + 507.0}, *AGAIN[4:], progress(513.0, 180, samples=50_000),
        epoch(514.0, 2, accuracy=0.5)), 515.0),
    "resumed, without a step": ((*TRAINED, *AGAIN[:3]), 503.0),
    "resumed and done": ((*TRAINED, *AGAIN, finished(520.0, **SPEED)), None),
    "an error, and an end without one": ((*TRAINED, at(28.0, "error", **BAD), finished(28.5, "error",
                                          first_step_seconds=2.0)), None),
    "an outcome in the result alone": ((*TRAINED, at(28.0, "finished", summary={"outcome": "oom"})), None),
    "started again": ((*TRAINED, finished(28.5, "error", error=BAD), {**started(), "t": BEGAN + 29.0}), 30.0),
    "told by engine and trainer": ((*BEGIN[:1], phase(0.1, "starting"), *FIRST[5:], progress(13.0, 5)), 14.0),
    "ended, and a later reading": ((*BEGIN[:2], phase(25.0, "ended"), host(40.0)), 99.0),
    "events out of order": ((phase(3.0, "importing"), phase(1.0, "starting"), phase(5.0, "training"),
                             progress(9.0, 20), progress(8.0, 10)), 7.0),
}  # fmt: skip
EARLIER = tui.earlier_starts.usual([
    {"starting": 0.3, "importing": 6.0, "configuring": 0.2, "building": 1.0, "compiling": 4.0},
    {"starting": 0.3, "importing": 0.5, "configuring": 0.2, "building": 1.2, "compiling": 5.0},
    {"starting": 0.3, "importing": 8.0, "configuring": 0.2, "building": 1.1, "compiling": 4.5},
])  # fmt: skip


def state(now: tui.Snapshot) -> str:
    joins, breaks = [f"{t:.1f} s at step {step:.0f}" for t, step in now.joins], sorted(now.line("loss").breaks)
    return (
        f"{now.elapsed:.1f} s, {now.phase} for {now.phase_seconds:.1f} s; from {now.pace.begin:.1f} s on; an epoch: "
        f"{now.pace.steps_per_epoch} steps, a step: {now.pace.samples_per_step} samples; joins {joins}, breaks {breaks}"
    )


def test_the_live_view_of_a_run(golden: Golden) -> None:
    """Of each kind of state the first is shown whole, and of the others what differs from it."""
    parts, usual = list[str](), dict[str, str]()
    for name, (told, clock) in RUNS.items():
        now = played(*told, clock=clock) if told else replace(played(), phase=tui.phases.READING)
        drawn = [tui.head.rows(tui.head.RunName("cnn: epochs=3", "20260921-cnn", "images", 3), "", now, 100, RICH)]
        drawn += [
            tui.head.message_rows(now, 76, 6, RICH, "a"),
            [[(line, "")] for line in tui.worker_lines(now.workers)],
        ]
        drawn += [[tui.phases.failure(now, 90, RICH)], tui.head.result_rows(now, 90)] if now.outcome else []
        if tui.phases.is_due(now):
            drawn += [tui.phases.rows(now, EARLIER, 90, 12, RICH)]
        else:
            drawn += [[tui.phases.phase_line(now, width) for width in (100, 50)]]
            drawn += [[tui.title(plot, 90, RICH) for plot in tui.charts.on_one_axis(now, tui.Charts())[:2]]]
        drawn += [[[(row.text, "")] for row in tui.rows([], [], now.epochs, RICH)], [[(state(now), "")]]]
        shown = "".join(text(rows) for rows in drawn if rows)
        kind = "ended" if now.outcome else "starts" if tui.phases.is_due(now) else "trains"
        parts += [f"---- {name}\n", differing(shown, usual.get(kind, ""))]
        usual |= {kind: usual.get(kind, shown)} if told else {}
    golden("drawing/runs.txt", "".join(parts))


# ---- charts -----------------------------------------------------------------------------------------


def long_run() -> list[Told]:
    """Of 900 s with three epochs, evaluations, a checkpoint, the best epochs, and a resume after a pause of an hour."""
    told: list[Told] = [
        *BEGIN,
        phase(8.0, "compiling"),
        phase(12.0, "training"),
        {**EARLY, "t": BEGAN + 322.0},
        at(20.0, "gpu", gpus=[FULL]),
        at(880.0, "gpu", gpus=[FULL | {"busy": 0.5}]),
    ]
    for second in range(13, 913, 10):
        later = 3600 * (second > 610)
        step = (second - 13) // 3 - (40 if later else 0)
        told.append(progress(
            second + later, step, epoch=1 + step // 100, samples_per_second=9_000.0 + second, input_wait=second / 2000,
            step_ms_p50=100.0 + second % 7, step_ms_p95=120.0 + second % 30, window_loss=None if second == 203 else
            2.5 * 0.99 ** (step / 3), metrics={"accuracy": step / 400},
        ))  # fmt: skip
    told += [phase(315.0, "evaluating"), phase(318.0, "training"), phase(616.0, "saving"), phase(630.0, "training")]
    told += [epoch(321.0, 1, accuracy=0.2, val_accuracy=0.22, val_loss=1.4)]
    told += [epoch(3600 + 740.0, 2, accuracy=0.4, val_accuracy=0.5, val_loss=0.9)]
    told += [phase(4205.0, "importing"), phase(4208.0, "training")]
    return sorted(told, key=lambda event: event["t"])


# What is done to the visible part and the cursor of charts, one after the other.
MOVES: dict[str, Any] = {
    "the first move": lambda view: view.move(-1, 60),
    "ten columns to the left": lambda view: view.move(-10, 60),
    "closer, twice": lambda view: [view.zoom(0.5) for _ in "12"],
    "the cursor far to the left": lambda view: view.move(-40, 60),
    "to the first point": lambda view: view.place(view.whole[0]),
    "beyond the end": lambda view: view.place(10 * view.whole[1]),
    "all": lambda view: view.all(),
    "closer around the newest": lambda view: view.zoom(0.25),
    "the mouse comes": lambda view: view.hover((view.whole[0] + view.whole[1]) / 3),
    "the mouse leaves": lambda view: view.hover(None),
    "a range is dragged": lambda view: view.__dict__.update(dragged=(0.7 * view.whole[1], 0.5 * view.whole[1])),
    "and selected": lambda view: [view.__dict__.update(dragged=None), view.select(0.7 * view.whole[1], -5.0)],
    "as close as possible": lambda view: [view.zoom(0.5, 0.4 * view.whole[1]) for _ in range(20)],
    "farther than all": lambda view: [view.zoom(2.0) for _ in range(20)],
    "at the resume": lambda view: view.place(0.657 * view.whole[1]),
    "between two epochs": lambda view: view.place(0.6 * view.whole[1]),
}
AXES = {"auto": slice(None), "step": slice(2), "epoch": slice(-2, None), "samples": slice(4)}
# Charts as pictures: the place of the chart, width, height, glyphs, and the settings.
PICTURES: tuple[tuple[int, int, int, Any, Told], ...] = (
    (1, 60, 12, RICH, {}), (1, 60, 9, RICH, {"fill": False, "smoothing": 0.9}), (1, 60, 8, PLAIN, {"x_axis": "epoch"}),
    (1, 50, 8, RICH, {"x_axis": "step", "logarithmic": True}), (2, 40, 6, RICH, {"x_axis": "samples"}),
    (3, 40, 4, RICH, {}), (0, 40, 14, PLAIN, {}), (0, 40, 6, RICH, {"logarithmic": True, "smoothing": 0.6}),
    (5, 50, 7, RICH, {}),
)  # fmt: skip


def test_charts_their_cursor_and_their_visible_part(golden: Golden) -> None:
    now, parts = played(*long_run()), list[str]()
    for place, width, height, glyphs, settings in PICTURES:
        plot = tui.charts.on_one_axis(now, tui.Charts(**settings))[place]
        parts += [f"---- {settings}\n", text(tui.draw(plot, width, height, glyphs)[0])]
    for x_axis, moves in AXES.items():
        drawn, view = tui.Charts(x_axis), tui.Viewport()
        for name, move in list(MOVES.items())[moves]:
            view.suit(tui.charts.on_one_axis(now, drawn))
            move(view)
            plots = tui.charts.on_one_axis(now, drawn, view.window)
            rows = [tui.charts.row(now, plots, view, 110, RICH, "0")]
            if view.cursor is not None:
                near = (view.visible.high - view.visible.low) / 60
                rows += [row for plot in plots[:2] for row in tui.cursor.rows(plot, view.cursor, near, 110, RICH)]
            low, high = view.window or view.whole
            parts += [f"---- {x_axis}, {name}: {low:.4g} to {high:.4g}, {view.closer:.4g} times\n", text(rows)]
        table = tui.cursor.table(tui.charts.on_one_axis(now, drawn, (0.37 * view.whole[1], 0.45 * view.whole[1]))[1])
        parts += [f"---- {x_axis}, the values\n{table.expandtabs(12)}\n"]
    golden("drawing/charts.txt", "".join(parts))


COMPARED = {
    "long": long_run(), "short": [*TRAINED, finished(42.0)], "means": [*FIRST, progress(13.0, 10), progress(20.0, 90)],
    "no step": FIRST, "one GPU": [*TRAINED, at(25.0, "gpu", gpus=[FULL])],
    "two GPUs": [*BEGIN[:4], started(gpus=["GPU-0", "GPU-1"]), *FIRST[5:], *EPOCHS, several({}, {"busy": 0.1})],
}  # fmt: skip


def test_the_charts_of_compared_runs(golden: Golden) -> None:
    read, parts = {name: played(*told) for name, told in COMPARED.items()}, list[str]()
    for names in (["long", "short"], ["means", "short", "no step"], ["one GPU", "two GPUs"], ["long"] * 9, ["no step"]):
        runs = [
            tui.charts.Named(
                f"r{n} {name}", f"r{n}", n % 8, read[name], {"samples_per_second": 100.0 * n, "metrics.loss": n}
            )
            for n, name in enumerate(names)
        ]
        plots = tui.charts.compared_plots(runs, tui.Charts(smoothing=0.6))
        parts += [f"---- {', '.join(names)}: {', '.join(tui.charts.axes(runs))}\n", *(text([tui.title(plot, 100, RICH)])
                  + (f"{seen}\n" if (seen := tui.charts.hardly_seen(plot)) else "") for plot in plots)]  # fmt: skip
        parts += [
            text(tui.draw(plot, 60, 9, RICH)[0]) for plot in tui.charts.compared_plots(runs, tui.Charts("epoch"))[:1]
        ]
    golden("drawing/compared.txt", "".join(parts))


# ---- logs -------------------------------------------------------------------------------------------

# As TensorFlow 2.21 and Keras 3.15 wrote them, shortened.
LOG = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1790000001.489969    5303 port.cc:153] oneDNN custom operations are on.",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow",
    "E0000 00:00:1790000002.530655   27481 cuda_platform.cc:52] failed call to cuInit: INTERNAL",
    "E0000 00:00:1790000003.53   27481 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call "
    "to cuInit: UNKNOWN ERROR (303)",
    "W0000 00:00:1790000014.53   27481 gpu_device.cc:2342] Cannot dlopen some GPU libraries.",
    "E0000 00:00:1790000014.53   27481 cuda_dnn.cc:8579] Unable to register cuDNN factory",
    "F1126 10:27:03.123456    5303 executor.cc:1] fatal",
    "2026-11-22 10:27:03.123456: I tensorflow/core/util/port.cc:153] oneDNN",
    "2026-11-22 10:27:03.123456: W tensorflow/core/framework/op.cc:1] slow",
    "begun",
    "Traceback (most recent call last):", "ValueError: shapes do not fit", "/own/train.py:3: UserWarning: few samples",
    "WARNING:tensorflow:5 out of the last 5 calls triggered retracing", "ERROR no such file", "Epoch 3/10",
    "I0000 00:00:1790000033.1    5303 a.cc:1] after the third epoch",
    "my own words about an Error and Epoch 3", "Epochs", "wide " * 9 + "界" * 9, "界" * 16,
)  # fmt: skip
ENDED = (
    *FIRST, epoch(22.0, 1, accuracy=0.9991, **{"val_[b]": None}), epoch(32.0, 2, accuracy=1.0, loss=5.7e-5),
    epoch(34.0, 3, accuracy=123.4, loss=1e19),
)  # fmt: skip


def test_logs(golden: Golden) -> None:
    parts = [f"{look.style or 'plain'}{' noise' * look.noise} {f'{look.t - BEGAN:.1f} s' * bool(look.t)}: {line}\n"
             for line, look in zip(LOG, map(tui.judged, LOG), strict=True)]  # fmt: skip
    epochs, late = played(*ENDED).epochs, [0.0] * 12 + [BEGAN + 25.0] * (len(LOG) - 12)
    resumed = [engine.RESUMED, *LOG[:2], engine.RESUMED, *LOG[9:11]]
    shown = {
        "folded": tui.rows(LOG, late, epochs, RICH, "space"),
        "unfolded, narrow": tui.rows(LOG[8:18], late[8:18], epochs, PLAIN, fold=False, width=50),
        "no key": tui.rows(LOG[:3], [0.0] * 3, epochs[:1], PLAIN, width=17),
        "resumed": tui.rows(resumed, [0.0] * 6, epochs, RICH, "space", resumes=(BEGAN, BEGAN + 21.0, BEGAN + 33.0)),
        "resumed, not known yet": tui.rows(resumed, [0.0] * 6, epochs, RICH, fold=False, resumes=(BEGAN + 23.0,)),
        "only those with EPOCH, wrapped": tui.wrapped(tui.only(tui.rows(LOG, late, epochs, RICH), "EPOCH"), 30),
        "wrapped at 30": tui.wrapped(tui.rows(LOG[10:11] + LOG[-2:], late[:3], (), RICH), 30),
    }
    for name, rows in shown.items():
        parts += [f"---- {name}\n", *(f"{row.style or 'plain':<6} {row.text}\n" for row in rows)]
    golden("drawing/logs.txt", "".join(parts))


# What is written to a log, a piece at a time.
WRITTEN = ("begun\nhal", "f\n", "step 1\rstep 2\r\n\ttab \x1b[31mred\n", "", "\xff\n" * 3, "last, not ended")


def test_the_log_of_a_run_is_read_as_it_is_written(home: Path, golden: Golden) -> None:
    run = recorded.write(home, gpus=0, seconds=14, outcome=None, engine_pid=os.getpid(), log="")
    reader, parts, known = tui.RunReader(run, clock=lambda: BEGAN + 14), list[str](), 0
    for piece in WRITTEN:
        with run.file("engine.log").open("ab") as file:
            file.write(piece.encode("latin-1"))
        reader.poll()
        log, arrived = reader.picture.log, [t > 0 for t in reader.picture.log_arrived]
        parts += [f"---- {piece!r}: {reader.picture.log_count} lines\n"]
        parts += [f"{'new' if new else 'old'} {line}\n" for line, new in zip(log[known:], arrived[known:], strict=True)]
        known = len(log)
    golden("drawing/log-read.txt", "".join(parts))


# ---- the driver -------------------------------------------------------------------------------------


class Driver:
    """Stands for NVML, the clock of its reader and what ends it: it answers by a script, and takes its time.

    Each line of the script is a reading: the seconds that each GPU takes, the GPUs that are lost, and the errors.
    """

    def __init__(self, script: Script, gpus: int) -> None:
        self.script, self.gpus, self.now = list(script), gpus, 100.0
        self.lost: dict[int, float] = {}
        self.stuck, self.slow, self.is_over = list[float](), False, False
        self.reader: Any = None

    def __call__(self, **_: Any) -> Driver:
        if self.script[0][0] < 0:
            self.script.pop(0)
            raise engine.NvmlUnavailable("the NVIDIA driver is not loaded")
        return self

    @property
    def count(self) -> int:
        return self.gpus

    def read(self, slow: bool, stopping: Callable[[], bool]) -> list[engine.Gpu]:
        seconds, lost, _ = self.script[0]
        self.slow, self.stuck = slow, []
        self.lost = {index: self.lost.get(index, self.now) for index in lost}
        for _ in range(self.gpus):
            if stopping():
                break
            self.now += seconds
            self.stuck.append(self.reader.stuck_seconds)
        return [
            engine.Gpu(
                n, f"GPU-{n}", "T4", lost_since=self.lost.get(n), missing="it fell off" if n in self.lost else None
            )
            for n in range(self.gpus)
        ]

    def errors(self) -> list[engine.DriverError]:
        return [engine.DriverError(*error) for error in self.script.pop(0)[2]]

    def close(self) -> None: ...

    def monotonic(self) -> float:
        return self.now

    # ---- the end of the reader

    def is_set(self) -> bool:
        return self.is_over

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.is_over = not self.script or not self.gpus


Script = Sequence[tuple[float, Sequence[int], Sequence[tuple[Any, ...]]]]
FINE, SLOW, BOTH = (0.1, (), ()), (0.35, (), ()), (0.1, (0, 1), ())
DRIVERS: dict[str, tuple[int, Script]] = {
    "answers": (2, [FINE] * 3),
    "no GPU": (0, [FINE]),
    "not loaded for a while": (1, [(-1, (), ())] * 6 + [FINE]),
    "one reading is slow": (2, [(1.0, (), ()), FINE, FINE]),
    "at its limit": (2, [(0.3, (), ())] * 2),
    "slow": (2, [SLOW, SLOW, SLOW, FINE]),
    "each GPU takes 20 s": (3, [(20.0, (), ())]),
    "one GPU is lost and back": (3, [FINE, (0.1, (1,), ()), (0.1, (1,), ()), (0.1, (1,), ()), FINE, FINE]),
    "two are lost, one is back, and lost again": (
        3, [(0.1, lost, ()) for lost in ((0, 2), (0, 2), (2,), (2,), (0, 2), (0, 2), ())]),
    "all are lost and back": (2, [FINE, BOTH, BOTH, FINE, FINE]),
    "all are lost one after the other": (2, [(0.1, (0,), ()), BOTH, BOTH, (0.1, (1,), ())]),
    "the only one is lost": (1, [(0.1, (0,), ()), (0.1, (0,), ()), FINE]),
    "errors": (2, [(0.1, (), [(0, 79), (1, 13), (None, 62), (7, 48)]), (0.1, (), [(0, 79), (1, 999)])]),
    "an error and what is needed": (2, [(0.1, (), [(0, 48)]), (0.1, (), [(0, 154, "a reset")]), (
        0.1, (), [(1, 154, "a restart"), (1, 31), (1, 154, "a drain")])]),
}  # fmt: skip


def test_what_the_reader_of_the_driver_tells(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = list[str]()
    for name, (gpus, script) in DRIVERS.items():
        driver = Driver(script, gpus)
        monkeypatch.setattr(engine.sampler, "Nvml", driver)
        monkeypatch.setattr(engine.sampler, "time", driver)
        parts += [f"---- {name}\n"]

        def tell(event: engine.Event, driver: Driver = driver, parts: list[str] = parts) -> None:
            if isinstance(event, engine.Warn):
                said = f"{event.kind}: {event.message}" + f"\n         {event.hint}" * bool(event.hint)
            else:
                said = f"{event.missing or f'{len(event.gpus)} GPUs'}, every {event.interval_seconds} s"  # type: ignore[attr-defined]
                said += ", all of their figures" * driver.slow
                said += f"; the driver was waited for {max(driver.stuck):.1f} s" if driver.stuck else ""
            parts.append(f"{driver.now - 100:6.1f} s {said}\n")

        reader = driver.reader = engine.GpuReader(tell, 1.0)
        reader._done = driver  # type: ignore[assignment]
        reader.run()
        kept = reader.errors_since(100.15, [f"GPU-{n}" for n in range(2)])
        parts += [f"kept: {line}\n" for line in kept]
    golden("drawing/driver.txt", "".join(parts))


# ---- the screen of all GPUs -------------------------------------------------------------------------


class Machine:
    """Stands for the readers of the driver and of the host: all of the script is told at once."""

    script: Sequence[Told] = ()
    stuck_seconds = 0.0
    now = BEGAN

    def __init__(self, tell: Any = None, *_: Any, **__: Any) -> None:
        self._tell = tell

    def start(self) -> None:
        for told in self.script:
            Machine.now = told["t"]
            self._tell(engine.parsing.recalled(dict(told)))

    def stop(self) -> None: ...

    def read(self) -> engine.Event:
        return engine.parsing.recalled(dict(host(0.0)))


EIGHT: tuple[Told, ...] = (
    {}, {"processes": PROCESSES}, {"throttle": ["power cap"]}, LOST, {"mig": INSTANCES, "busy": None},
    {"processes": None, "reasons": {"processes": "no_permission"}}, {"busy": 0.02, "processes": [STRANGER]},
    {"processes": [STRANGER | {"memory_used_bytes": None}], "ecc_errors": {"uncorrected": 2}},
)  # fmt: skip
LATER = {**several(*EIGHT), "t": BEGAN + 40.0, "interval_seconds": 2.5}
HOLDERS = {
    "GPU-0": engine.Holder("GPU-0", "ann", 7, what="digits"), "MIG-b": engine.Holder("MIG-b", "bob", 8),
    "GPU-2": engine.Holder("GPU-2", stuck="its run has ended"),
}  # fmt: skip
RUNNING = SimpleNamespace(
    name="r7 cnn", liveness=SimpleNamespace(trainer=True), process=lambda role: SimpleNamespace(pid=5303)
)
NO_GPU = at(1.0, "gpu", gpus=[], missing="no NVIDIA driver on this machine (libnvidia-ml.so.1 is missing)")
# A machine: what is told, the run that goes on, for how long the driver has not answered; and the keys to each screen.
SCREENS: dict[str, tuple[tuple[int, int], Sequence[Told], Any, float, Told]] = {
    "eight": (SMALL, (several(*EIGHT), LATER), None, 0.0, {
        "": "", "-last": "end", "-processes": "P down", "-chart": "escape down enter"}),
    "eight-wide": (LARGE, (several(*EIGHT), LATER), None, 0.0, {"": "down down"}),
    "two": (SMALL, (several({}, EIGHT[7]), {**LATER, "gpus": LATER["gpus"][:2]}), RUNNING, 0.0, {
        "": "down", "-chart": "enter right_square_bracket left"}),
    "none": (SMALL, (NO_GPU,), None, 0.0, {"": ""}),
    "no-nvml": (SMALL, (NO_GPU,), RUNNING, 0.0, {"": "", "-processes": "P"}),
    "stuck": (SMALL, (), None, 7.4, {"": ""}),
}  # fmt: skip


@pytest.mark.parametrize("name", SCREENS)
async def test_the_screens_of_a_machine(
    name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch, not_at_utc: None
) -> None:
    size, script, run, stuck_seconds, ways = SCREENS[name]
    monkeypatch.setattr(Machine, "script", script)
    monkeypatch.setattr(Machine, "stuck_seconds", stuck_seconds)
    monkeypatch.setattr(engine.sampler, "GpuReader", Machine)
    monkeypatch.setattr("gputui.engine.telemetry.host.Host", Machine)
    monkeypatch.setattr(tui.machine, "time", SimpleNamespace(time=lambda: Machine.now, monotonic=lambda: 5.0))
    monkeypatch.setattr(tui.machine, "newest_runs", lambda: [run] if run else [])
    monkeypatch.setattr(engine.gpu_use, "holder", HOLDERS.get)
    monkeypatch.setattr(engine.chips, "has_device_nodes", lambda: name == "no-nvml")
    monkeypatch.setattr(engine.chips, "is_wsl", lambda: False)
    async with Tiny(tui.GpusScreen).run_test(size=size) as pilot:
        await wait_for(pilot, "34 %")  # of the host: a key has its effect once all has been read
        for shot, keys in ways.items():
            await pilot.press(*keys.split())
            file = f"screens/gpus-{name}{shot}.txt"
            golden(file, await arrived(pilot, golden.expected(file)))
