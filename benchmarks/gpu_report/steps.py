"""What the report measures: each step returns Markdown, or raises Failed or Skipped with its reason."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gputui.engine.options import OPTIONS
from gputui.engine.telemetry import compatible, machine

from . import timeline
from .commands import GPUTUI, Failed, Lab, Skipped, Training, call

KEYS = {option.key for option in OPTIONS}
MB = 1024**2
HANG_SECONDS = 60
# The trainer is a child of a child, in a session of its own.
NSYS = ("nsys", "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--wait=all", "--export=sqlite",
        "--trace-fork-before-exec=true", "--force-overwrite=true")  # fmt: skip
# In front of the trainer: its clock of steps and input is left out, as where operations must be deterministic.
CLOCK_OFF = """
import importlib.util, sys
NAME = "gputui.engine.trainer.measure.sampled_parts"
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        load = found.loader.exec_module
        def load_without(module):
            load(module)
            of = module.of
            module.of = lambda deterministic, on_gpu: of(True, on_gpu)
        found.loader.exec_module = load_without
        return found
sys.meta_path.insert(0, Finder())
"""
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
            a = tf.eye(2048)
            return tf.while_loop(lambda i, _: i >= 0, lambda i, a: (i, tf.matmul(a, a)), (tf.constant(1), a))[1][0, 0]
        extra = tf.cond(self.done >= self.at, forever, lambda: tf.constant(0.0))
        return {**logs, "loss": logs["loss"] + extra}

def build(context):
    inner = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
    model = Hangs(inner, 200)
    model.compile("sgd", "mse", jit_compile=False)
    x = np.random.default_rng(0).standard_normal((4096, 32)).astype("float32")
    return model, (x, x[:, :1])
"""


# ---- tables -----------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)


def figure(value: float | None, digits: int = 1, factor: float = 1.0) -> str:
    return "-" if value is None else f"{factor * value:.{digits}f}"


COLUMNS = ("training", "samples/s", "step ms p50", "p95", "input wait %", "Python %", "transfer %", "busy %", "SM %",
           "peak MiB", "first step s")  # fmt: skip


def row(name: str, one: Training) -> list[str]:
    summary, times = one.summary, one.summary.get("step_ms") or {}
    shares = [summary.get(key) for key in ("input_wait", "python_share", "transfer", "gpu_busy_mean")]
    return [
        name, figure(summary.get("samples_per_second")), figure(times.get("p50"), 2), figure(times.get("p95"), 2),
        *(figure(value, factor=100) for value in (*shares, one.mean("sm_active"))),
        figure(summary.get("peak_memory_bytes"), 0, 1 / MB), figure(summary.get("first_step_seconds")),
    ]  # fmt: skip


def code(text: str) -> str:
    return f"```\n{text.rstrip()}\n```"


# ---- the machine ------------------------------------------------------------------------------


def doctor(_lab: Lab) -> str:
    done = call([GPUTUI, "doctor", "--deep", "--json"], 120)
    findings = json.loads(done.out)["findings"]
    rows = [[one.get("level"), one.get("what") or one.get("message"), one.get("remedy") or ""] for one in findings]
    return table(("level", "finding", "remedy"), rows)


def tools(_lab: Lab) -> str:
    if shutil.which("nvidia-smi") is None:
        raise Skipped("nvidia-smi is not installed")
    return "\n\n".join(code(call(["nvidia-smi", *more], 60).out) for more in ((), ("topo", "-m")))


def tests(lab: Lab) -> str:
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-rA", "--no-header", "tests/end_to_end/test_gpu.py"]
    done = call(command, 20 * lab.limit_seconds)
    lines = [line for line in done.out.splitlines() if re.match(r"(PASSED|FAILED|ERROR|SKIPPED)\b", line)]
    if not lines:
        raise Failed((done.out + done.errors).strip().splitlines()[-1] if done.out + done.errors else "no output")
    last = done.out.strip().splitlines()[-1]
    reasons = [line for line in done.out.splitlines() if line.startswith("E  ")][:40]
    return f"{last}\n\n{code(chr(10).join(lines))}" + (f"\n\n{code(chr(10).join(reasons))}" if reasons else "")


# ---- speed ------------------------------------------------------------------------------------


def strategies() -> dict[str, dict[str, Any]]:
    found = {"single": {"device.visible": first(), "strategy.kind": "single"},
             "one_device": {"device.visible": first(), "strategy.kind": "one_device"}}  # fmt: skip
    if len(machine.visible_gpus()) > 1:
        found["mirrored over all"] = {"device.visible": "all", "strategy.kind": "mirrored"}
    return found


def first() -> Any:
    """The first GPU that this process may use, as an option."""
    given = machine.visible_gpus()
    return given[0].index if given else "all"


def by_strategy(lab: Lab) -> str:
    """Each strategy, and the first with what changes how batches and steps reach the GPU."""
    kinds = strategies()
    more: dict[str, dict[str, Any]] = {
        "single, 8 steps together": {"compile.steps_per_execution": 8},
        "single, batches copied within the step": {"input.prefetch_to_device": "off"},
    }
    for name, change in more.items():
        if change.keys() <= KEYS:
            kinds[name] = kinds["single"] | change
    profiled = {"run.profile": f"{lab.steps // 2}-{lab.steps // 2 + 19}"}
    rows, shares = [], []
    for name, settings in kinds.items():
        together = settings.get("compile.steps_per_execution", 1) > 1
        one = lab.train(lab.image_model(**settings | ({} if together else profiled)))
        rows.append(row(name, one))
        if not together:
            shares.append([name, *_profile(one)])
    head = ("training", "step ms", "shares of the step by XProf")
    return f"{table(COLUMNS, rows)}\n\n{table(head, shares)}"


def _profile(one: Training) -> tuple[str, str]:
    done = call([GPUTUI, "diagnose", one.folder.name, "--json"], 300, {"GPUTUI_HOME": str(one.folder.parents[1])})
    told = json.loads(done.out) if done.out.startswith("{") else {}
    profile = told.get("profile")
    if not profile:
        return "-", told.get("profile_missing") or done.errors.strip()[:200]
    shares = ((name, value) for name, value in profile["shares"].items() if value)
    return figure(profile["step_ms"], 2), ", ".join(f"{name} {100 * value:.1f} %" for name, value in shares)


def gaps(lab: Lab) -> str:
    """Idle time between kernels, and copies beside them, by Nsight Systems."""
    if shutil.which("nsys") is None:
        raise Skipped("nsys (Nsight Systems) is not installed")
    rows = []
    for name, settings in strategies().items():
        target = lab.folder / f"nsys-{name.split()[0]}"
        around = [*NSYS, "-o", str(target)]
        lab.train(lab.image_model(**settings) | {"train.steps_per_epoch": min(100, lab.steps)}, around=around)
        try:
            found = timeline.read(target.with_suffix(".sqlite"))
        except sqlite3.Error as fault:
            raise Failed(f"the recording of nsys has another format: {fault}") from None
        rows += [[name, one.device, figure(one.idle, factor=100), figure(one.longest_gap_ms, 2),
                  figure(one.copied_bytes / one.seconds, 2, 1e-9), figure(one.copying, factor=100),
                  figure(one.hidden, factor=100)] for one in found]  # fmt: skip
    return table(("training", "GPU", "no kernel %", "longest gap ms", "from the host GB/s", "copying %",
                  "of it beside kernels %"), rows)  # fmt: skip


def clock(lab: Lab) -> str:
    """gputui's own clock of steps and input, in turn with it left out."""
    folder = lab.folder / "clock_off"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(CLOCK_OFF)
    rows = []
    for name, settings in strategies().items():
        speeds: dict[bool, list[float]] = {True: [], False: []}
        for on in (True, False, False, True):
            one = lab.train(lab.image_model(**settings), environment={} if on else {"PYTHONPATH": str(folder)})
            if (one.summary.get("input_wait") is not None) != on:
                raise Failed("the clock could not be left out: the trainer's modules have changed")
            speeds[on].append(one.summary["samples_per_second"])
        pairs = [with_it / without for with_it, without in zip(speeds[True], speeds[False], strict=True)]
        each = [", ".join(f"{speed:.1f}" for speed in speeds[on]) for on in (True, False)]
        rows.append([name, *each, ", ".join(f"{ratio:.3f}" for ratio in pairs)])
    return table(("training", "samples/s with the clock", "without", "with / without, each pair"), rows)


def options(lab: Lab) -> str:
    """benchmarks/gpu.py, one round."""
    size = {"model": lab.model, "pixels": lab.pixels, "width": lab.width, "batch-size": lab.batch_size,
            "steps": lab.steps}  # fmt: skip
    given = [word for name, value in size.items() for word in (f"--{name}", str(value))]
    done = call([sys.executable, "-m", "benchmarks.gpu", "--rounds", "1", *given], 9 * lab.limit_seconds)
    if done.code != 0:
        raise Failed((done.errors or done.out).strip().splitlines()[-1][:300])
    return done.out


def xla(lab: Lab) -> str:
    """XLA for the first time, and in a new process with what it has kept in gputui's home, as `xla_cache` lets it."""
    if any(compatible.xla_aborts(gpu.compute_capability) for gpu in machine.visible_gpus()):
        raise Skipped("XLA of this TensorFlow has no code for this chip and would end the process")
    settings = lab.image_model(**strategies()["single"]) | {"compile.xla": True}
    rows = []
    for kept in ("auto", True, False):
        change = {"compile.xla_cache": kept}
        for time in ("first", "again") if kept is not False else ("alone",):
            one = lab.train(settings | change, home=f"xla-{kept}", may_fail=True)
            name = f"xla_cache={str(kept).lower()}, {time}"
            rows.append(row(name if one.summary.get("outcome") == "ok" else f"{name}: {one.end()}", one))
    return table(COLUMNS, rows)


# ---- truth ------------------------------------------------------------------------------------


def hang(lab: Lab) -> str:
    """A step whose GPU operation never ends must end the run, although TensorFlow polls the GPU all the time."""
    folder = lab.folder / "hang"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(HANGS)
    preset = folder / "preset.yaml"
    preset.write_text('workload: {entry: "train.py:build"}\n')
    settings = {"device.visible": first(), "run.hang_seconds": HANG_SECONDS, "train.epochs": 20, "input.batch_size": 64}
    one = lab.train(settings, preset=str(preset), may_fail=True)
    error = one.summary.get("error") or {}
    steps = one.only("progress").get("step")
    head = ("outcome", "kind", "message", "hint", "last step reported", "seconds in all")
    return table(head, [[one.summary.get("outcome"), error.get("kind"), error.get("message"), error.get("hint"), steps,
                         figure(one.seconds)]])  # fmt: skip


def memory(lab: Lab) -> str:
    """What TensorFlow says that it may take, what gputui has told of it, and what the driver has seen."""
    rows = []
    for growth in (True, False):
        one = lab.train(lab.small_model(**{"device.visible": first(), "device.memory_growth": growth}))
        told = [gpu.get("memory_limit_bytes") for gpu in one.only("started").get("gpu_devices") or ()]
        used = [gpu["memory_used_bytes"] for gpu in one.readings() if gpu.get("memory_used_bytes") is not None]
        totals = [gpu["memory_total_bytes"] for gpu in one.readings() if gpu.get("memory_total_bytes")]
        rows.append(
            [
                f"growth {'on' if growth else 'off'}",
                _created(one),
                _mib(told),
                _mib([min(used, default=None)]),
                _mib([max(used, default=None)]),
                _mib(totals[:1]),
                _mib([one.summary.get("peak_memory_bytes")]),
            ]
        )
    return table(("training", "TensorFlow's line", "reported limit MiB", "in use at first", "at most", "in all",
                  "tensors at most"), rows)  # fmt: skip


def _created(one: Training) -> str:
    found = re.findall(r"Created device \S+ with (\d+) MB memory", one.log())
    return ", ".join(f"{number} MB" for number in found) or "no line 'Created device ... with N MB memory'"


def _mib(values: Sequence[float | None]) -> str:
    return ", ".join(figure(value, 0, 1 / MB) for value in values) or "-"


def several(lab: Lab) -> str:
    """`single` with several visible GPUs: one trains, and nothing is taken of the others."""
    given = machine.visible_gpus()
    if len(given) < 2:
        raise Skipped("there is one GPU only")
    rows = []
    for kind in ("single", "mirrored"):
        one = lab.train(lab.small_model(**{"device.visible": "all", "strategy.kind": kind}))
        trains = set(one.only("started").get("gpus") or ())
        rows += [[kind, gpu.index, gpu.name, "yes" if gpu.uuid in trains else "no", *_taken(one, gpu.index)]
                 for gpu in given]  # fmt: skip
        rows.append([kind, "-", one.only("diagnosis").get("sentence", "no diagnosis"), "", "", ""])
    return table(("strategy.kind", "GPU", "model", "trains", "taken at most MiB", "busy %"), rows)


def _taken(one: Training, index: int) -> Iterator[str]:
    readings = list(one.readings(index))
    used = [gpu["memory_used_bytes"] for gpu in readings if gpu.get("memory_used_bytes") is not None]
    busy = [gpu["busy"] for gpu in one.readings(index, steps_only=True) if gpu.get("busy") is not None]
    yield figure(max(used) - used[0] if used else None, 0, 1 / MB)
    yield figure(sum(busy) / len(busy) if busy else None, factor=100)
