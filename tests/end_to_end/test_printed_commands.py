"""What commands print of this machine, of a measurement that goes on, and before they delete, word for word."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from gputui.engine import doctor
from gputui.engine.doctor import Finding
from gputui.engine.leases.free_gpus import GpuUse, GpuUser
from gputui.engine.leases.lease import Holder, NotFree
from gputui.engine.trials.record import Record
from gputui.engine.units import since
from gputui.tui import cli
from gputui.tui.base.errors import INTERRUPTED
from gputui.tui.commands import runs
from gputui.tui.commands.runs import ask_before_deleting
from gputui.tui.printing.proof import ProofLines, left
from rich.console import Console

from tests.end_to_end.test_printed import Printed, Snapshot, printed
from tests.end_to_end.test_printed import fixed as fixed
from tests.support import recorded, recorded_proof, recorded_search
from tests.support.cases import all_hold
from tests.support.recorded import GIB
from tests.support.recorded_proof import PROOF
from tests.support.typed import typed

FINDINGS = [
    Finding("ok", "GPU 0", "NVIDIA H100, 80.0 GiB"),
    Finding("note", "host", "swap is used", "add memory"),
    Finding("warning", "packages", "cuDNN is old", "pip install nvidia-cudnn-cu12"),
]
LACKING = Finding("error", "CUDA", "CUDA's libraries are missing", "pip install 'tensorflow[and-cuda]'")
KERAS = Finding("error", "Keras", "Keras 2.1 is too old", "pip install keras")


def test_the_findings_of_the_doctor(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed, snapshot: Snapshot
) -> None:
    with all_hold() as cases:
        for name, findings in (
            ("ready", FINDINGS), ("no GPU", FINDINGS[1:2]), ("a driver alone", [Finding("ok", "driver", "570")]),
            ("without CUDA", [*FINDINGS, LACKING]), ("not at all", [*FINDINGS, LACKING, KERAS]),
        ):  # fmt: skip
            monkeypatch.setattr(doctor, "examine", lambda *_given, found=findings: found)
            for words in ("doctor", "doctor --json"):
                with cases.case(f"{words}, {name}"):
                    assert printed(capsys, home, *words.split()) == snapshot(name=f"{words}, {name}")


def test_the_python_that_is_named_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, str | None]] = []

    def examine(deep: bool, python: str | None) -> list[Finding]:
        asked.append((deep, python))
        return []

    monkeypatch.setattr(doctor, "examine", examine)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    for words in ([], ["--deep"], ["--python", str(tmp_path)], ["--python", "/usr/bin/python9", "--deep", "--json"]):
        cli.run(["doctor", *words])
    assert asked == [
        (False, None), (True, None), (False, f"{tmp_path}/bin/python"), (True, "/usr/bin/python9"),
    ]  # fmt: skip


THEY = GpuUser(4711, "ann", "python", recorded.BEGAN, 30 * GIB)
GPUS = [
    GpuUse(0, "GPU-a", "NVIDIA H100", 0, 80 * GIB, 0.0, ()),
    GpuUse(1, "GPU-b", "NVIDIA H100", 31 * GIB, 80 * GIB, 0.97, (THEY,)),
    GpuUse(2, "GPU-c", "NVIDIA H100", 70 * GIB, 80 * GIB, 0.5, (THEY, *(GpuUser(number) for number in range(3, 7)))),
    GpuUse(3, "GPU-d", "NVIDIA H100", 9 * GIB, 80 * GIB, 0.4, (), Holder("GPU-d", "bob", 12, recorded.BEGAN, "resnet")),
    GpuUse(4, "GPU-e", "NVIDIA H100", 2 * GIB, 80 * GIB, 0.0, (), Holder("GPU-e", "bob", stuck="process 12 hangs")),
    GpuUse(5, "GPU-f", "Tesla T4", 1 * GIB - 1, 15 * GIB, 0.02, None),
    GpuUse(6, "GPU-g", "Tesla T4", 1 * GIB, 15 * GIB, 0.0, None),
    GpuUse(7, "GPU-h", "Tesla T4", 0, 15 * GIB, 0.03, ()),
    GpuUse(8, "GPU-i", "Tesla T4", fault="the GPU is lost"),
]


@pytest.fixture
def of_that_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever uses the GPUs has begun today."""
    for module in ("free_gpus", "lease"):
        monkeypatch.setattr(f"gputui.engine.leases.{module}.since", partial(since, now=recorded.BEGAN + 60))


@pytest.mark.usefixtures("of_that_day")
def test_the_gpus_and_who_uses_them(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed, snapshot: Snapshot
) -> None:
    for read in (lambda: GPUS, lambda: [], _nothing_read):
        monkeypatch.setattr("gputui.engine.leases.free_gpus.read", read)
        assert printed(capsys, home, "gpus") == snapshot
        assert printed(capsys, home, "gpus", "--json") == snapshot
    reasons = [(gpu.index, gpu.free_bytes // GIB, gpu.why_not_fitting(60 * GIB)) for gpu in GPUS]
    assert "\n".join(map(str, reasons)) == snapshot(name="for a run of 60 GiB")


def _nothing_read() -> list[GpuUse]:
    raise NotFree("no NVIDIA driver on this machine")


@pytest.mark.usefixtures("of_that_day")
def test_gpus_that_are_shared_divided_or_held_by_an_idle_process(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed, snapshot: Snapshot
) -> None:
    bob = Holder("GPU-c", "bob", 12, recorded.BEGAN, "resnet", per_gpu=3)
    idle = GpuUser(12, "ann", "python", memory_bytes=GIB, idle_seconds=7200.4)
    users = (GpuUser(11, "ann", "python"), idle, GpuUser(13, idle_seconds=7199.6))
    boxes = [
        GpuUse(0, "GPU-a", "NVIDIA H100", 31 * GIB, 80 * GIB, 0.97, users),
        GpuUse(1, "MIG-b", "NVIDIA A100 1g.5gb", instance=2, users=()),
        GpuUse(2, "GPU-c", "NVIDIA H100", 9 * GIB, 80 * GIB, 0.4, (), replace(bob, sharers=(bob, bob))),
    ]
    monkeypatch.setattr("gputui.engine.leases.free_gpus.read", lambda: boxes)
    monkeypatch.setattr("gputui.tui.commands.gpus.IdleNotes", lambda: SimpleNamespace(of=lambda gpus: gpus))
    assert printed(capsys, home, "gpus") == snapshot
    assert printed(capsys, home, "gpus", "--json") == snapshot


# ---- while it is measured -------------------------------------------------------------------------


def _running() -> Iterator[dict[str, Any]]:
    first = PROOF | recorded_proof.running()
    yield first | {"baseline_trials": recorded_proof.trials(("a", 411.0)), "comparisons": []}
    yield first | {"budget_most_seconds": 400.0}
    yield first | {"state": "done", "comparisons": PROOF["comparisons"], "doing": "ended"}
    search = recorded_search.ENDED | recorded_search.running()
    yield search | {"budget_seconds": 600.0}
    yield search | {"budget_seconds": 50.0, "comparisons": PROOF["comparisons"][2:3], "kind": "ab", "search": None}
    yield recorded_search.ENDED


def test_the_lines_of_a_measurement_that_goes_on(monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot) -> None:
    monkeypatch.setattr("gputui.tui.printing.proof.elapsed_of", lambda data: 100.0)
    out = StringIO()
    lines = ProofLines(Console(file=out, width=120))
    for number, fields in enumerate(_running()):
        if number == 3:
            lines = ProofLines(lines.out)
        out.write(f"-- {fields['kind']}, {fields['state']}{left(typed(Record, fields))}\n")
        for _ in range(2):  # what has been printed is not printed again
            lines.show(typed(Record, fields))
    assert out.getvalue() == snapshot


def test_the_result_of_a_measurement_that_goes_on(home: Path, capsys: Printed, snapshot: Snapshot) -> None:
    with all_hold() as cases:
        for number, fields in enumerate(_running()):
            proof = recorded_proof.write_proof(home, f"p{number}", **(fields | {"id": f"p{number}"}))
            with cases.case(number):
                text = printed(capsys, home, "proof", proof.id).replace("\n\n", "\n")
                assert text == snapshot(name=f"{number} {fields['kind']}, {fields['state']}")


# ---- before something is deleted ------------------------------------------------------------------


def test_the_question_before_deleting(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed, snapshot: Snapshot
) -> None:
    made = [recorded.write(home, name=f"run-{number}", gpus=0, seconds=13) for number in range(14)]
    proofs = [recorded_proof.write_proof(home, name, kind=kind) for name, kind in (("p1", "ab"), ("p2", "tune"))]
    asked: list[str] = []
    monkeypatch.setattr(runs, "used_bytes", lambda *folders: 1024**2 * len(folders))
    with pytest.raises(Exception, match="which needs a terminal"):
        ask_before_deleting(made, [], "run", "all")
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)

    def refuse(text: str) -> bool:
        asked.append(text)
        return False

    monkeypatch.setattr(click, "confirm", refuse)
    for chosen in (made[:1], made[:12], made):
        assert cli.run(["runs", "rm", *(run.id for run in chosen)]) == INTERRUPTED
    for names in (["p1"], ["p2", "p1", "p2"]):
        assert cli.run(["proof", "rm", *names]) == INTERRUPTED
    assert all(path.is_dir() for path in [*(run.path for run in made), *(proof.path for proof in proofs)])
    assert capsys.readouterr().out + "\n".join(asked) == snapshot
    monkeypatch.setattr(click, "confirm", lambda text: True)
    assert cli.run(["runs", "rm", made[0].id]) == 0
    assert [run.path.is_dir() for run in made] == [False] + [True] * 13
    assert cli.run(["proof", "rm", "p1", "p1"]) == 0
    assert capsys.readouterr().out.endswith("deleted 1 proof: 1.0 MiB are free\n")
    assert [proof.path.is_dir() for proof in proofs] == [False, True]
