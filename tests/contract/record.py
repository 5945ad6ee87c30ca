"""Records a home of gputui by real commands: `python -m tests.contract.record`, once for each version that is released.

homes/VERSION.tar.xz then holds run folders, proofs, a search and a sweep as this version writes them. The outputs of
commands about them are kept in golden/, and later versions must open them. Needs root (a host's name of its own), a
compiler for the stand-ins of GPUs, and about ten minutes.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.doors.engine import __version__
from tests.support.fakegpu import FakeGpu, build
from tests.support.fakenvml import compiled

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
WORK = Path("/home/you")  # where the recorded paths lie
FAILS = """\
import numpy as np


def build(context):
    raise ValueError("the file labels.csv has 12 columns, but 11 are wanted")
"""
OWN = """\
import keras
import numpy as np


def build(context):
    x = np.random.default_rng(0).normal(size=(600, 8)).astype("float32")
    y = x.sum(axis=1)
    units = context.args.get("units", 8)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(units, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return {"model": model, "train": (x[:500], y[:500]), "validation": (x[500:], y[500:])}
"""
PRESET = """\
schema_version: 1
description: A small regression of my own
workload: {entry: "train.py:build", args: {units: 8}}
input: {batch_size: 50}
train: {epochs: 6, seed: 5}
"""
SMALL = """\
schema_version: 1
extends: quickstart
description: The digits, by a small network
workload: {model: mlp, width: 0.1}
train: {seed: 3}
"""


class Recorder:
    def __init__(self, gpus: FakeGpu) -> None:
        self.gpus = gpus
        self.environment = os.environ | {
            "HOME": str(WORK), "GPUTUI_HOME": str(WORK / "gputui"), "XDG_CONFIG_HOME": str(WORK / "config"),
            "GPUTUI_LEASES": str(WORK / "leases"), "GPUTUI_IDLE_SECONDS": "0", "TZ": "UTC",
        }  # fmt: skip

    def run(self, *words: str, code: int = 0, environment: Mapping[str, str] | None = None) -> None:
        print("gputui", *words, flush=True)
        command = [str(Path(sys.executable).with_name("gputui")), *words]
        done = subprocess.run(
            command,
            cwd=WORK,
            env=self.environment | dict(environment or {}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])

    def all(self) -> None:
        (WORK / "train.py").write_text(OWN)
        (WORK / "fails.py").write_text(FAILS)
        (WORK / "own.yaml").write_text(PRESET)
        (WORK / "small.yaml").write_text(SMALL)
        quick = ("--preset", "small.yaml")
        self.run(*quick, "--set", "epochs=3")
        self.run(*quick, "--set", "epochs=3", "--set", "batch_size=128")
        self.run(*quick, "--set", "epochs=3", "--set", "seed=4")
        self.run("tag", "latest", "baseline", "cpu")
        self.run("note", "latest", "the same with another seed")
        self.run("--preset", "own.yaml", "--set", "checkpoint=epoch")
        self.run("--preset", "own.yaml", "--set", "entry=fails.py:build", code=1)
        self.run("--preset", "own.yaml", "--set", "train.epochs=100000", "--set", "run.max_minutes=0.5",
                 "--set", "checkpoint=epoch", code=1)  # fmt: skip
        two = self.gpus.environment(WORK / "gpus", gpus=2, memory_mb=8192)
        self.run(*quick, "--set", "strategy.kind=mirrored", "--set", "epochs=4", environment=two)
        full = self.gpus.environment(WORK / "full", gpus=1, memory_mb=64)
        self.run(
            "--preset", "quickstart", "--set", "batch_size=1024", "--set", "train.seed=3", code=3, environment=full
        )
        measured = ("--seconds", "0.5", "--anyway")
        self.run("ab", *quick, *measured, "--set", "steps_per_execution=8")
        self.run("ab", *quick, *measured, "--set", "learning_rate=0.003")
        self.run("diagnose", *quick, *measured, "--apply", "--minutes", "1.5", "-o", "better.yaml")
        self.run("tune", *quick, *measured, "--minutes", "2", "--only", "batch_size", "--only", "steps_per_execution")
        self.run("tune", *quick, "--learning-rate-test", "--minutes", "2", "--anyway")
        self.run("sweep", "--preset", "own.yaml", "--over", "args.units=2,16", "--set", "epochs=2",
                 "--proof-seeds", "3", "--minutes", "5")  # fmt: skip
        self.run("scaling", *quick, *measured, "--set", "logical_devices=2")


def main() -> None:
    if os.uname().nodename != "box":
        words = (
            "unshare",
            "--uts",
            "sh",
            "-c",
            'hostname box && exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "tests.contract.record",
        )
        sys.exit(subprocess.run(words, check=False).returncode)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        Recorder(FakeGpu(build.library(), compiled(Path(folder)))).all()
    print(f"recorded in {time.monotonic() - began:.0f} s")
    pack()


def pack() -> None:
    target = HERE / "homes" / f"{__version__}.tar.xz"
    target.parent.mkdir(exist_ok=True)
    with tarfile.open(target, "w:xz") as archive:
        for path in sorted((WORK / "gputui").rglob("*")):
            if path.is_file() and path.suffix != ".lock":
                _add(archive, path)
    print(f"{target.stat().st_size} bytes")


def _add(archive: tarfile.TarFile, path: Path) -> None:
    """A file under its path below WORK, without the paths of this clone."""
    content = path.read_bytes()
    for found, instead in ((Path(sys.prefix), ".venv"), (ROOT, "source"), (Path.home(), "")):
        content = content.replace(str(found).encode(), str(WORK / instead).encode())
    info = archive.gettarinfo(path, str(path.relative_to(WORK)))
    info.type, info.linkname = tarfile.REGTYPE, ""  # also of a file with several names
    info.size, info.uid, info.gid, info.uname, info.gname = len(content), 0, 0, "", ""
    archive.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    main()
