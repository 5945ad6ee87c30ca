"""What the report measures: each step returns Markdown, or raises Failed or Skipped with its reason."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gputui.engine.interpreter import compatibility
from gputui.engine.job import this_machine
from gputui.engine.telemetry import chips

from . import timeline
from .commands import GPUTUI, Failed, Lab, Skipped, Training, given
from .text import code, figure, last_line, table

MB = 1024**2
# The trainer is a child of a child, in a session of its own.
NSYS = ("nsys", "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--wait=all", "--export=sqlite",
        "--trace-fork-before-exec=true", "--force-overwrite=true")  # fmt: skip
OF_THE_GPU = ("name,driver_version,pstate,power.limit,power.default_limit,clocks.max.sm,compute_mode,mig.mode.current,"
              "ecc.mode.current,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,"
              "memory.total,persistence_mode,temperature.gpu")  # fmt: skip
# What nvidia-smi tells at a moment, what our reading calls it, and by how much ours is to be divided.
BESIDE = {"utilization.gpu": ("busy", 0.01), "memory.used": ("memory_used_bytes", MB), "power.draw": ("power_w", 1),
          "clocks.sm": ("sm_clock_mhz", 1), "temperature.gpu": ("temperature_c", 1)}  # fmt: skip
PROFILED = "10-19"  # steps
BESIDE_SECONDS = 0.5  # between two readings; the moments of a pair are at most half of it apart
# Figure of a run, its digits and factor, and why a machine may not have it.
COLUMNS: Mapping[str, tuple[str, int, float, str]] = {
    "samples/s": ("samples_per_second", 1, 1, "no training has reached its measured steps"),
    "step ms p50": ("step_ms.p50", 2, 1, "no training has reached its measured steps"),
    "p95": ("step_ms.p95", 2, 1, "no training has reached its measured steps"),
    "input wait %": ("input_wait", 1, 100, "too few steps, or the clock of the input cannot run here"),
    "Python %": ("python_share", 1, 100, "too few steps, or the clock of the input cannot run here"),
    "copy %": ("transfer", 1, 100, "TensorFlow could not copy a batch for it"),
    "busy %": ("gpu_busy_mean", 1, 100, "the driver has no utilization of these GPUs"),
    "SM %": ("sm_active", 1, 100, "the driver has no performance metrics (GPM) of these GPUs, which begin with Hopper"),
    "MFU %": ("mfu", 2, 100, "the peak of these GPUs or the operations of the model are not known"),
    "W": ("gpu_power_mean_w", 0, 1, "the driver does not tell the power of these GPUs"),
    "SM MHz": ("sm_clock_mean_mhz", 0, 1, "the driver does not tell the clocks of these GPUs"),
    "slowed by power %": ("slowed_by_power", 1, 100, "the driver has no counters of slowed time"),
    "by heat %": ("slowed_by_heat", 1, 100, "the driver has no counters of slowed time"),
    "J/sample": ("sample_energy_j", 3, 1, "the driver counts no energy, or the trainings were too short for it"),
    "peak MiB": ("peak_memory_bytes", 0, 1 / MB, "TensorFlow counts no memory of these devices"),
    "first step MiB": ("first_step_memory_bytes", 0, 1 / MB, "TensorFlow counts no memory of these devices"),
    "first step s": ("first_step_seconds", 1, 1, "no training has reached its second step"),
    "start s": ("startup_seconds", 1, 1, "no training has reached its second step"),
}
PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "float32": {"precision.tf32": False, "compile.xla": False},
    "TF32": {"precision.tf32": True, "compile.xla": False},
    "bfloat16 + XLA": {"precision.policy": "mixed_bfloat16", "compile.xla": True},
    "bfloat16": {"precision.policy": "mixed_bfloat16", "compile.xla": False},
    "float16": {"precision.policy": "mixed_float16", "compile.xla": False},
    "TF32 + XLA": {"precision.tf32": True, "compile.xla": True},
    "float16 + XLA": {"precision.policy": "mixed_float16", "compile.xla": True},
    "bfloat16 + 8 steps together": {"precision.policy": "mixed_bfloat16", "compile.xla": False,
                                    "compile.steps_per_execution": 8},
}  # fmt: skip
OF_QUICK = 3  # so many of them, from the first on
# In front of the trainer: its clock of steps and input is left out, as where operations must be deterministic.
CLOCK_OFF = """
import importlib.util, sys
NAME = "gputui.engine.trainer.measure.step_parts"
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        load = found.loader.exec_module
        def load_without(module):
            load(module)
            parts_for = module.step_parts_for
            module.step_parts_for = lambda deterministic, on_gpu: parts_for(True, on_gpu)
        found.loader.exec_module = load_without
        return found
sys.meta_path.insert(0, Finder())
"""
# The fit of an exported script, with the seconds of its epochs.
PLAIN = """
import json, runpy, sys, time
import keras

class Clock(keras.callbacks.Callback):
    seconds = []
    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.perf_counter()
    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self.began)

def fit(model, *data, callbacks=(), **settings):
    plain(model, *data, callbacks=[*callbacks, Clock()], **settings)
    print(json.dumps(Clock.seconds))

plain, keras.Model.fit = keras.Model.fit, fit
runpy.run_path(sys.argv[1], run_name="__main__")
"""
EPOCHS = 4  # of a training beside a plain one; the first is left out
# A step that never ends, after enough that do.
HANGS = """
import keras, numpy as np, tensorflow as tf

class Hangs(keras.Model):
    def __init__(self, inner, at):
        super().__init__()
        self.inner, self.at = inner, at
        self.done = tf.Variable(0, dtype=tf.int64, trainable=False)

    def call(self, x, training=False):
        return self.inner(x, training=training)

    def train_step(self, data):
        logs = super().train_step(data)
        self.done.assign_add(1)
        def forever():
            a = tf.eye(1024)
            return tf.while_loop(lambda i, _: i >= 0, lambda i, a: (i, tf.matmul(a, a)), (tf.constant(1), a))[1][0, 0]
        extra = tf.cond(self.done >= self.at, forever, lambda: tf.constant(0.0))
        return {**logs, "loss": logs["loss"] + extra}

def build(context):
    inner = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
    model = Hangs(inner, 50)
    model.compile("sgd", "mse", jit_compile=False)
    x = np.random.default_rng(0).standard_normal((4096, 32)).astype("float32")
    return model, (x, x[:, :1])
"""


def results(lab: Lab, runs: Iterable[tuple[str, Training]]) -> str:
    """Return a table with a row for each named training. A figure that none has is named in `lab.missing` instead."""
    runs = list(runs)
    known = [title for title, (key, *_) in COLUMNS.items() if any(run.value(key) is not None for _, run in runs)]
    for title, (*_, why) in COLUMNS.items():
        lab.missing[title] = "" if title in known else lab.missing.get(title, why)
    rows = [[name if run.value("outcome") == "ok" else f"{name}: {run.end()}",
             *(figure(run.value(COLUMNS[title][0]), *COLUMNS[title][1:3]) for title in known)]
            for name, run in runs]  # fmt: skip
    return table(("training", *known), rows)


# ---- the machine ------------------------------------------------------------------------------


def doctor(lab: Lab) -> str:
    findings = lab.answer("doctor", "--deep")["findings"]
    rows = [[each.get("level"), each.get("about") or "", each.get("what") or each.get("message"),
             each.get("remedy") or ""] for each in findings]  # fmt: skip
    return table(("level", "about", "finding", "remedy"), rows)


def driver(lab: Lab) -> str:
    _needs("nvidia-smi")
    asked = lab.call(["nvidia-smi", f"--query-gpu={OF_THE_GPU}", "--format=csv"], 60)
    if asked.code != 0:
        raise Failed(last_line(asked.errors or asked.out))
    head, *rows = ([cell.strip() for cell in line.split(",")] for line in asked.out.splitlines() if line)
    idle = "An idle GPU lowers its PCIe generation (pcie.link.gen.current), as its clocks."
    return f"{table(head, rows)}\n\n{idle}\n\n{code(lab.call(['nvidia-smi', 'topo', '-m'], 60).out)}"


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        raise Skipped(f"{program} is not installed")


def tests(lab: Lab) -> str:
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-rA", "--no-header", "tests/end_to_end/test_gpu.py"]
    done = lab.call([*command, *(("-k", lab.size.tests) if lab.size.tests else ())], 20 * lab.size.limit_seconds)
    lines = [line for line in done.out.splitlines() if re.match(r"(PASSED|FAILED|ERROR|SKIPPED|E  )", line)]
    if not lines:
        raise Failed(last_line(done.out + done.errors) or "no output")
    if done.code != 0:
        raise Failed(f"{last_line(done.out)}\n\n{code(chr(10).join(lines[:80]))}")
    return f"{last_line(done.out)}\n\n{code(chr(10).join(lines))}"


def beside(lab: Lab) -> str:
    """Return a table that compares gputui's readings of a training with those of nvidia-smi at the same time."""
    _needs("nvidia-smi")
    command = ["nvidia-smi", f"--query-gpu=index,{','.join(BESIDE)}", "--format=csv,noheader,nounits",
               f"--loop-ms={1000 * BESIDE_SECONDS:.0f}"]  # fmt: skip
    theirs: list[tuple[float, list[str]]] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True) as smi:
        assert smi.stdout is not None
        lines = iter(smi.stdout.readline, "")
        keep = threading.Thread(target=lambda: theirs.extend((time.time(), line.split(",")) for line in lines))
        keep.start()
        try:
            run = lab.train(lab.small_model(**strategies()["single"] | {"run.sample_seconds": BESIDE_SECONDS}))
        finally:
            smi.terminate()
            keep.join()
    rows = [pairs(place, name, run, theirs) for place, name in enumerate(BESIDE, 1)]
    if not any(row[1] for row in rows):
        raise Failed(f"nvidia-smi has no readings of the same moments: {','.join(theirs[-1][1]) if theirs else '-'}")
    return table(("figure", "pairs", "gputui, mean", "nvidia-smi, mean", "mean difference", "largest"), rows)


def pairs(place: int, name: str, run: Training, theirs: Sequence[tuple[float, list[str]]]) -> list[Any]:
    """Return a row that compares the figure `name` of gputui with that in the column `place` of nvidia-smi's lines."""
    key, unit = BESIDE[name]
    both: list[tuple[float, float]] = []
    for event in run.events:
        for gpu in event.get("gpus") or () if event.get("type") == "gpu" else ():
            with contextlib.suppress(ValueError, TypeError, LookupError):  # "[N/A]", or a figure that we have not
                near = min((abs(t - event["t"]), line[place]) for t, line in theirs if line[0] == str(gpu["index"]))
                if near[0] <= BESIDE_SECONDS / 2:
                    both.append((gpu[key] / unit, float(near[1])))
    if not both:
        return [name, 0, *"----"]
    apart = [abs(ours - other) for ours, other in both]
    means = (*(statistics.fmean(side) for side in zip(*both, strict=True)), statistics.fmean(apart), max(apart))
    return [name, len(both), *map(figure, means)]


# ---- speed ------------------------------------------------------------------------------------


def strategies() -> dict[str, dict[str, Any]]:
    kinds = {"single": {"device.visible": first(), "strategy.kind": "single"}}
    if len(this_machine.read().shown) > 1:
        kinds["mirrored over all"] = {"device.visible": "all", "strategy.kind": "mirrored"}
    return kinds


def first() -> Any:
    """Return the number of the first GPU that this process may use, as a value of device.visible, else `all`."""
    shown = this_machine.read().shown
    return shown[0].index if shown else "all"


def by_strategy(lab: Lab) -> str:
    """Return tables with the results of each strategy, and with the shares of a step by XProf."""
    kinds = strategies()
    if not lab.quick:
        kinds["one_device"] = kinds["single"] | {"strategy.kind": "one_device"}
    runs = {
        name: lab.train(lab.image_model(**settings | {"run.profile": PROFILED})) for name, settings in kinds.items()
    }
    profiled = [[name, *_profile(lab, run)] for name, run in list(runs.items())[: 1 if lab.quick else None]]
    head = ("training", "step ms", "shares of the step by XProf")
    return f"{results(lab, runs.items())}\n\n{table(head, profiled)}"


def _profile(lab: Lab, run: Training) -> tuple[str, str]:
    answer = lab.answer("diagnose", run.folder.name)
    profile = answer.get("profile")
    if not profile:
        lab.missing["shares of a step by XProf"] = why = answer.get("profile_missing") or "no profile was written"
        return "-", f"not measured here: {why}"
    shares = ((name, value) for name, value in profile["shares"].items() if value)
    return figure(profile["step_ms"], 2), ", ".join(f"{name} {100 * value:.1f} %" for name, value in shares)


def copies(lab: Lab) -> str:
    """Return the results with batches copied before their step and within it, and how much of the copying is hidden."""
    ways = {"copied ahead": "auto", "copied within the step": "off"}
    settings = lab.image_model(**strategies()["single"])
    runs = {name: lab.train(settings | {"input.prefetch_to_device": value}) for name, value in ways.items()}
    step, within = (run.value("step_ms.p50") for run in runs.values())
    share = runs["copied within the step"].value("transfer")
    text = results(lab, runs.items())
    if step is None or within is None or share is None:
        return f"{text}\n\nOverlap: not measured here: no time of a copy is known."
    return (f"{text}\n\nA batch is copied in {share * within:.3f} ms when the GPU is idle; copied ahead, a step takes "
            f"{within - step:.3f} ms less.\n\n{_gaps(lab, settings)}")  # fmt: skip


def _gaps(lab: Lab, settings: Mapping[str, Any]) -> str:
    """Return a table of idle time between kernels, and of copies at the same time as kernels. Empty without nsys."""
    if shutil.which("nsys") is None:
        lab.missing["kernels and copies side by side"] = "nsys (Nsight Systems) is not installed"
        return ""
    target = lab.folder / "nsys"
    lab.train(settings, around=[*NSYS, "-o", str(target)])
    try:
        gpus = timeline.read(target.with_suffix(".sqlite"))
    except sqlite3.Error as fault:
        raise Failed(f"the recording of nsys has another format: {fault}") from None
    rows = [[gpu.device, figure(gpu.idle, 1, 100), figure(gpu.longest_gap_ms, 2),
             figure(gpu.copied_bytes / gpu.seconds, 2, 1e-9), figure(gpu.copying, 1, 100),
             figure(gpu.hidden, 1, 100)] for gpu in gpus]  # fmt: skip
    return table(("GPU", "no kernel %", "longest gap ms", "from the host GB/s", "copying %", "of it beside kernels %"),
                 rows)  # fmt: skip


def plain(lab: Lab) -> str:
    """Return a table that compares an exported script with the same training by gputui, in turn."""
    each = max(2, lab.size.steps // EPOCHS)
    length = {"train.epochs": EPOCHS, "train.steps_per_epoch": each, "run.measure_seconds": "null"}
    settings = lab.image_model(**strategies()["single"] | length)
    script, program = lab.folder / "plain.py", lab.folder / "timed.py"
    program.write_text(PLAIN)
    made = lab.call([GPUTUI, "export", "--preset", "quickstart", *given(settings), "-o", str(script)], 60)
    if made.code != 0:
        raise Failed(last_line(made.errors))
    rows = []
    for _ in range(lab.size.rounds):
        done = lab.call([sys.executable, str(program), str(script)], lab.size.limit_seconds)
        line = last_line(done.out)
        if done.code != 0 or not line.startswith("["):
            raise Failed(f"the exported script has ended with {done.code}: {last_line(done.errors)}")
        with_it, without = _epochs(lab.train(settings)), () if lab.quick else _without_clock(lab, settings)
        times = [1000 * statistics.median(seconds[1:]) / each if seconds else None
                 for seconds in (json.loads(line), with_it, without)]  # fmt: skip
        rows.append([*(figure(ms, 3) for ms in times), figure((times[0] or 0) / (times[1] or 1), 3)])
    return table(("plain fit, ms/step", "gputui", "gputui without its clock",
                  "plain / gputui: 1 means that gputui costs nothing"), rows)  # fmt: skip


def _epochs(run: Training) -> Sequence[float]:
    return [event["seconds"] for event in run.events if event.get("type") == "epoch"]


def _without_clock(lab: Lab, settings: Mapping[str, Any]) -> Sequence[float]:
    folder = lab.folder / "clock_off"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(CLOCK_OFF)
    run = lab.train(settings, environment={"PYTHONPATH": str(folder)})
    if run.value("input_wait") is not None:
        raise Failed("the clock could not be left out: the trainer's modules have changed")
    return _epochs(run)


def precisions(lab: Lab) -> str:
    """Return the results of each precision with and without XLA, on one batch that is prepared once, in turn."""
    on = lab.image_model(**strategies()["single"]) | {"input.one_batch": True}
    chosen = [name for name in PRECISIONS if _computes(PRECISIONS[name])][: OF_QUICK if lab.quick else None]
    runs = []
    for change in range(lab.size.rounds):
        runs += [(f"{name}, {change + 1}", lab.train(on | dict(PRECISIONS[name]), may_fail=True)) for name in chosen]
    return results(lab, runs)


def _computes(options: Mapping[str, Any]) -> bool:
    """Return True if all GPUs compute in the precision of these options, and XLA does not end the process."""
    capabilities = [gpu.compute_capability for gpu in this_machine.read().shown if gpu.compute_capability]
    policy = options.get("precision.policy")
    formats = all(policy in chips.fast_policies(capability, False) for capability in capabilities if policy)
    tf32 = not options.get("precision.tf32") or all(chip >= chips.BFLOAT16_CAPABILITY for chip in capabilities)
    return formats and tf32 and not (options["compile.xla"] and _xla_aborts())


def _xla_aborts() -> bool:
    return any(compatibility.xla_aborts(gpu.compute_capability) for gpu in this_machine.read().shown)


def xla(lab: Lab) -> str:
    """Return the results with XLA for each value of `xla_cache`: the first time, and again in a new process."""
    if _xla_aborts():
        raise Skipped("XLA of this TensorFlow has no code for this chip and would end the process")
    settings = lab.image_model(**strategies()["single"]) | {"compile.xla": True}
    runs = [(f"xla_cache={kept}, {when}", lab.train(settings | {"compile.xla_cache": kept}, f"xla-{kept}",
                                                    may_fail=True))
            for kept in (("auto",) if lab.quick else ("auto", "true", "false"))
            for when in (("first", "again") if kept != "false" else ("alone",))]  # fmt: skip
    return results(lab, runs)


def proof(lab: Lab) -> str:
    """Return the trials and the proved gain of a search by `gputui tune`."""
    minutes = lab.size.proof_minutes
    only = ("--only", "precision", *(() if lab.quick else ("--only", "xla")), "--minutes", f"{minutes:g}")
    settings = lab.image_model(**strategies()["single"])
    seconds = min(2.0, lab.size.seconds)  # of a trial
    search = lab.answer("tune", "--preset", "quickstart", *given(settings), *only, "--seconds", f"{seconds:g}",
                    "--anyway", limit_seconds=60 * minutes + 120)  # fmt: skip
    head = ("what", "change", "samples/s", "gain", "decision", "SM MHz", "W", "slowed by power", "by heat", "disturbed")
    rows = [
        _measured(each["reason"] or each["stage"], each["settings"], each) for each in search["search"]["candidates"]
    ]
    rows += [_measured("pairs (a without, b with)", each["changes"], each) for each in search["comparisons"]]
    gain, starts = search.get("gain_total"), _starts(lab, str(search["id"]))
    total = "not proved" if gain is None else f"{gain:.2f} times as fast"
    why = search["ended_because"] or search["state"]
    return (f"{table(head, rows)}\n\nIn all: {total}; ended because {why}. From the command to the end of the first "
            f"step of a trial, whose trainer is forked: {starts} s.")  # fmt: skip


def _measured(what: str, change: Mapping[str, Any], each: Mapping[str, Any]) -> list[Any]:
    trials = each["trials"]
    side = {"a": "a ", "b": "b "}
    speeds = ", ".join(side.get(trial["side"], "") + figure(trial.get("samples_per_second")) for trial in trials)
    keys = {"sm_clock_mean_mhz": 0, "gpu_power_mean_w": 0, "slowed_by_power": 3, "slowed_by_heat": 3}
    means = ([trial[key] for trial in trials if trial.get(key) is not None] for key in keys)
    clocks = [figure(statistics.fmean(known) if known else None, digits)
              for known, digits in zip(means, keys.values(), strict=True)]  # fmt: skip
    changed = ", ".join(f"{key}={value}" for key, value in change.items())
    disturbed = sum(bool(trial.get("disturbed")) for trial in trials)
    decision = f"{each['decision']} {each['why']}"
    return [what, changed, speeds, figure(each["gain"], 3), decision, *clocks, disturbed]


def _starts(lab: Lab, proof_id: str) -> str:
    files = (lab.folder / "home" / "proofs" / proof_id / "trials").glob("*/result.json")
    return ", ".join(figure(json.loads(file.read_text()).get("startup_seconds")) for file in sorted(files))


# ---- truth ------------------------------------------------------------------------------------


def batches(lab: Lab) -> str:
    """Return the memory that a large batch takes: predicted, as a whole, in parts, and with too low a memory limit."""
    size = lab.size.large_batch_size
    large = {"input.batch_size": size, "workload.samples": 2 * size, "train.steps_per_epoch": 6,
             "run.measure_seconds": "null"}  # fmt: skip
    settings = lab.image_model(**strategies()["single"] | large)
    predicted = lab.answer("tune", "--dry-run", "--anyway", "--preset", "quickstart", *given(settings))
    parts = (1, 4) if lab.quick else (1, 2, 4)
    runs = {f"micro_batches={count}": lab.train(settings | {"train.micro_batches": count}, may_fail=True)
            for count in parts}  # fmt: skip
    most, least = (run.value("peak_memory_bytes") for run in (runs["micro_batches=1"], runs["micro_batches=4"]))
    text = (f"Predicted for batch {size} by two small trials: "
            f"{figure((predicted['search']['memory'] or {}).get('predicted_bytes'), 0, 1 / MB)} MiB; measured: "
            f"{figure(most, 0, 1 / MB)} MiB. `gputui tune --dry-run`: {predicted['ended_because']}.")  # fmt: skip
    limit = round(((most or 0) + 3 * (least or 0)) / 4 / MB)  # nearer to what parts take: wholes may fit into less
    if not (most and least and 64 <= limit < most / MB):
        why = f"the peaks as a whole and in parts leave no limit between them of at least 64 MiB ({limit})"
        lab.missing["run.on_oom=accumulate"] = why
    else:
        less = {"device.memory_limit_mb": limit, "run.on_oom": "accumulate"}
        name = f"on_oom=accumulate, memory_limit_mb={limit}"
        runs[name] = run = lab.train(settings | less, may_fail=True)
        answers = ", ".join(answer["message"] for answer in run.value("memory_answers") or ())
        text += f" With {limit} MiB: {answers or 'it fits as a whole'}."
    return f"{text}\n\n{results(lab, runs.items())}"


def hang(lab: Lab) -> str:
    """Return how a run is ended in which a GPU operation never ends. Raises Failed if it was not ended as hung."""
    folder = lab.folder / "hang"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(HANGS)
    preset = folder / "preset.yaml"
    preset.write_text('workload: {entry: "train.py:build"}\n')
    settings = {"device.visible": first(), "run.hang_seconds": lab.size.hang_seconds, "train.epochs": 20,
                "input.batch_size": 64}  # fmt: skip
    run = lab.train(settings, preset=str(preset), may_fail=True)
    error = run.value("error") or {}
    if error.get("kind") != "hang":
        raise Failed(f"the run was not ended as hung: {run.end()}")
    head = ("outcome", "kind", "message", "hint", "last step reported", "seconds in all")
    step = run.only("progress").get("step")
    return table(head, [[run.value("outcome"), error["kind"], error.get("message"), error.get("hint"), step,
                         figure(run.seconds)]])  # fmt: skip


def memory(lab: Lab) -> str:
    """Return the memory that TensorFlow says it may take, that gputui reports, and that the driver sees."""
    rows = []
    for growth in (True, False):
        run = lab.train(lab.small_model(**{"device.visible": first(), "device.memory_growth": growth}))
        limits = [gpu.get("memory_limit_bytes") for gpu in run.only("started").get("gpu_devices") or ()]
        used = [gpu["memory_used_bytes"] for gpu in run.readings() if gpu.get("memory_used_bytes") is not None]
        totals = [gpu["memory_total_bytes"] for gpu in run.readings() if gpu.get("memory_total_bytes")]
        memory = ([min(used, default=None)], [max(used, default=None)], totals[:1], [run.value("peak_memory_bytes")])
        rows.append([f"growth {'on' if growth else 'off'}", _created(run), *map(_mib, (limits, *memory))])
    return table(("training", "TensorFlow's line", "reported limit MiB", "in use at first", "at most", "in all",
                  "tensors at most"), rows)  # fmt: skip


def _created(run: Training) -> str:
    lines = re.findall(r"Created device \S+ with (\d+) MB memory", run.log())
    return ", ".join(f"{number} MB" for number in lines) or "no line 'Created device ... with N MB memory'"


def _mib(values: Sequence[float | None]) -> str:
    return ", ".join(figure(value, 0, 1 / MB) for value in values) or "-"


def several(lab: Lab) -> str:
    """Return the use of each of several visible GPUs with `single`, which trains on one GPU, and with `mirrored`."""
    shown = this_machine.read().shown
    if len(shown) < 2:
        raise Skipped("there is one GPU only")
    rows = []
    for kind in ("single", "mirrored"):
        run = lab.train(lab.small_model(**{"device.visible": "all", "strategy.kind": kind}))
        trains = set(run.only("started").get("gpus") or ())
        rows += [[kind, gpu.index, gpu.name, "yes" if gpu.uuid in trains else "no", *_taken(run, gpu.index)]
                 for gpu in shown]  # fmt: skip
        rows.append([kind, "-", run.only("diagnosis").get("sentence", "no diagnosis"), "", "", ""])
    return table(("strategy.kind", "GPU", "model", "trains", "taken at most MiB", "busy %"), rows)


def _taken(run: Training, index: int) -> Iterator[str]:
    readings = list(run.readings(index))
    used = [gpu["memory_used_bytes"] for gpu in readings if gpu.get("memory_used_bytes") is not None]
    busy = [gpu["busy"] for gpu in run.readings(index, steps_only=True) if gpu.get("busy") is not None]
    yield figure(max(used) - used[0] if used else None, 0, 1 / MB)
    yield figure(sum(busy) / len(busy) if busy else None, factor=100)
