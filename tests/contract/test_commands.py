"""What commands accept, refuse and print, and their exit codes, in golden/answers: a user's session in each file."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Golden
from tests.doors.engine import Machine, presets, runs, this_machine, titles
from tests.doors.engine import proof_request as request
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.checked import named
from tests.support.queued import no_runner
from tests.support.recorded_proof import write_proof

NOW = 1_796_120_000.0
KERAS_LOG = Path(recorded.__file__).parent / "keras_log"
FILES = {
    "good.yaml": "description: good\ntrain: {epochs: 2}\n",
    "noted.yaml": "device: {memory_limit_mb: 64}\ntrain:\n  steps_per_epoch: 5\n",
    "wrong.yaml": "train:\n  optimizer: adam\n  momentum: 0.9\ninput: {cast: device, augment: blur}\n",
    "broken.yaml": "train: {epochs: many}\n",
    "seven.yaml": "".join(f"wrong{number}: 1\n" for number in range(7)),
    "own.yaml": "extends: base.yml\nworkload: {entry: 'mine.py:build', args: {units: 3, head: {bias: true}}}\n",
    "base.yml": "workload: {model: mlp}\ntrain: {epochs: 9}\nrun: {code: copy}\n",
    "gone.yaml": "workload: {entry: 'gone.py:build'}\n", "data.yaml": "workload: {data: 'npz:a.npz'}\n",
    "sub/below.yaml": "extends: ../base.yml\ninput: {cache: kept}\n", "compose.yaml": "services: {a: 1}\n",
    "round.yaml": "extends: trip.yaml\n", "trip.yaml": "extends: round.yaml\n",
    "epochs.csv": "epoch;loss;val_loss\n0;0.5;0.75\n1;0.25;nan\n2;0.125;NA\n3;0.1\n", "sub/table.csv": "a,b\n1,2\n",
    "empty.csv": "epoch,loss\n",
    "mine.py": "def build(context):\n    context.args['units']\n", "input-heavy.yaml": "train: {epochs: 1}\n",
}  # fmt: skip


@dataclass(frozen=True)
class Session:
    folder: Path
    clock: list[float]  # the time now

    def files(self) -> Iterator[tuple[Path, int]]:
        """All, in the user's folder and at home, with the time of their change."""
        yield from ((path, path.stat().st_mtime_ns) for path in sorted(self.folder.rglob("*")))


@pytest.fixture
def session(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, not_at_utc: None) -> Session:
    """In a folder with presets and code, with three runs and two measurements, on a machine without a GPU."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "CUDA_", "TF_CONFIG", "GPUTUI_PYTHON"))]:
        monkeypatch.delenv(name)
    clock, localtime, strftime = [NOW], time.localtime, time.strftime
    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "localtime", lambda at=None: localtime(clock[0] if at is None else at))
    monkeypatch.setattr(time, "strftime", lambda form, at=None: strftime(form, at or localtime(clock[0])))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(this_machine, "read", lambda: Machine((), "no NVIDIA driver", 8, 2**34))
    no_runner(monkeypatch)
    folder = tmp_path / "here"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    os.utime(folder / "epochs.csv", (NOW - 3600,) * 2)
    shutil.copytree(KERAS_LOG, folder / "fit")  # of Keras' own TensorBoard callback
    shutil.copytree(KERAS_LOG / "train", folder / "several" / "damaged")
    shutil.copytree(KERAS_LOG, folder / "several" / "whole")
    cut = next((folder / "several" / "damaged").iterdir())
    os.truncate(cut, cut.stat().st_size - 100)
    monkeypatch.chdir(folder)
    for number, (name, outcome) in enumerate((("cnn", "ok"), ("vit", "stopped"), ("mlp", None))):
        pid = None if outcome else os.getpid()
        of: dict[str, Any] = {"gpus": 0, "seconds": 30, "outcome": outcome, "engine_pid": pid}
        run = recorded.write(home, name=f"20260921-1{number}0000-{name}", **of)
        run.file("origin.json").write_text(titles.record(name, f"/x/{name}.yaml", {"train.epochs": (2, 10 + number)}))
        os.utime(run.file("preset.yaml"), (recorded.BEGAN + 3600 * number,) * 2)
    for number in (1, 2):
        proof = write_proof(home, f"20260921-13000{number}-ab", kind="ab")
        (proof.path / "request.json").write_text(request.of_change("quickstart", ["xla=true"]).to_json())
        os.utime(proof.path / "request.json", (NOW - 60 + number,) * 2)
    return Session(tmp_path, clock)


def told(words: str, session: Session, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """The exit code, what a command prints, and behind `!` its errors; of a whole preset what is not usual. A minute
    passes with each. Another machine, or an environment, may stand before ` $ `.
    """
    session.clock[0] += 60.0
    if words == "(the latest completes)":
        runs.find("latest").file("result.json").write_text('{"outcome": "ok"}')
        return
    here, _, command = words.rpartition(" $ ")
    capsys.readouterr()
    before = list(session.files())
    with pytest.MonkeyPatch.context() as patched:
        if here:
            machine = named(here, patched)
            patched.setattr(this_machine, "read", lambda: machine)
        code = cli.run(shlex.split(command))
    for made in {path for path, _ in session.files()} - {path for path, _ in before}:
        os.utime(made, (session.clock[0],) * 2)
    assert code != 2 or " rm " in words or list(session.files()) == before, f"{words}: refused, and has changed files"
    out, err = capsys.readouterr()
    if out.startswith("schema_version:"):
        usual = [*presets.resolve("quickstart").to_yaml().splitlines(), *presets.defaults().to_yaml().splitlines()]
        out = "\n".join(line for line in out.splitlines() if line not in usual)
    errors = [f"! {' / '.join(err.splitlines())}"] if err else []
    text = "\n".join([*(line or "-" for line in out.splitlines()), *errors])
    text = text.replace(str(session.folder / "here"), "HERE").replace(str(session.folder), "PARENT")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(?=  0.0 s)", "by the file", text)
    text = re.sub(r"(?<=[a-z])-[0-9a-f]{8}\b", "-PLACE", text)
    text = re.sub(r"\d+(\.\d)? [KM]iB", "SIZE", re.sub(r"seed: \d{6,}", "seed: DRAWN", text))
    first, *more = text.split("\n")
    yield f"[{code}] {first}".rstrip()
    yield from more


@pytest.mark.parametrize("name", ["commands", "logs", "presets", "queue"])
def test_what_commands_answer(name: str, golden: Golden, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    golden.answers(f"answers/{name}.txt", lambda words: told(words, session, capsys))
