"""Runs of a user's own code that does unusual things: it leaves processes, opens files, handles signals, changes
folder.

A case is a function that gets a random generator. It raises Violation if gputui behaves wrongly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from .lab import check, lab, result, settings

BUILD = """
import atexit, multiprocessing, os, pathlib, signal, subprocess, sys, time
import keras, numpy as np
HERE = pathlib.Path(__file__).parent

def work(n=0):
    time.sleep(600)

def made():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model

def build(context):
    x = np.random.default_rng(0).random((200, 4), "float32")
    {body}
    return {{"model": made(), "train": (x, x[:, :2]), "callbacks": [{callback}]}}

class Odd(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        {hook}
"""
# name: (in build, in a callback, files that must be there at the end with their content)
BODIES: dict[str, tuple[str, str, dict[str, str]]] = {
    "atexit": ("atexit.register(lambda: (HERE / 'left').write_text('yes'))", "", {"left": "yes"}),
    "an open file": ("global F; F = open(HERE / 'left', 'w'); F.write('yes')", "", {"left": "yes"}),
    "a daemon process": ("multiprocessing.Process(target=work, daemon=True).start()", "", {}),
    "a process that stays": ("subprocess.Popen(['sleep', '600'])", "", {}),
    "a process in a session of its own": ("subprocess.Popen(['sleep', '600'], start_new_session=True)", "", {}),
    "ends a process": ("p = multiprocessing.Process(target=work); p.start(); p.terminate(); p.join()", "", {}),
    "ends a subprocess": ("p = subprocess.Popen(['sleep', '600']); p.terminate(); p.wait()", "", {}),
    "a pool": ("with multiprocessing.Pool(2) as pool: pool.map(abs, range(9))", "", {}),
    "a pool left open": ("global P; P = multiprocessing.Pool(2); P.map(abs, range(9))", "", {}),
    "odd logs": ("", "logs[3] = object()", {}),
    "changes folder": ("os.chdir('/')", "", {}),
    "a thread that stays": ("import threading; threading.Thread(target=work).start()", "", {}),
}


def ends_well(name: str) -> Callable[[random.Random], None]:
    body, hook, files = BODIES[name]

    def case_of(_chance: random.Random) -> None:
        with lab() as case:
            text = BUILD.format(body=body or "pass", callback="Odd()" if hook else "", hook=hook or "pass")
            (case.folder / "train.py").write_text(text)
            (case.folder / "mine.yaml").write_text('workload: {entry: "train.py:build"}\ntrain: {epochs: 2}\n')
            done = case.gputui("--preset", "mine.yaml")
            check(done.returncode == 0, f"exit code {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
            for file, content in files.items():
                place = case.folder / file
                check(place.exists() and place.read_text() == content, f"{file} was lost")
            check(not case.processes(), f"{len(case.processes())} processes are left")
            _nothing_in(case.folder)

    return case_of


def _nothing_in(folder: Path) -> None:
    left = [path.name for path in folder.rglob("__autograph_generated_file*")]
    check(not left, f"{len(left)} files of AutoGraph are left")


def elsewhere(_chance: random.Random) -> None:
    """Train own code of another folder, which changes the current folder, with a relative GPUTUI_HOME. The run must end
    well and write a checkpoint into this home.
    """
    with lab() as case:
        code = case.folder / "code"
        code.mkdir()
        (code / "train.py").write_text(BUILD.format(body="os.chdir('/')", callback="", hook="pass"))
        (case.folder / "mine.yaml").write_text(
            f'workload: {{entry: "train.py:build", folder: {code}}}\ntrain: {{epochs: 2}}\nrun: {{checkpoint: epoch}}\n'
        )
        case.environment["GPUTUI_HOME"] = "here"
        done = case.gputui("--preset", "mine.yaml")
        check(done.returncode == 0, f"exit code {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
        (run,) = (case.folder / "here" / "runs").glob("2*")
        check(result(run).get("outcome") == "ok", f"result {result(run)}")
        check(any((run / "checkpoints").glob("step-*")), "no checkpoint")


def odd_home(name: str) -> Callable[[random.Random], None]:
    """Return a case with a home whose `name` has unusual bytes. The training must end well, or be refused with a
    message.
    """

    def case_of(_chance: random.Random) -> None:
        with lab() as case:
            case.environment["GPUTUI_HOME"] = str(case.folder) + "/" + name
            done = case.gputui("--preset", "quickstart", *settings("epochs=1", "steps_per_epoch=5", "model=mlp"))
            check(done.returncode in (0, 2), f"exit code {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
            check(done.returncode == 0 or done.stderr.strip(), "refused without a word")

    return case_of
