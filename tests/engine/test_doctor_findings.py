"""What the doctor reads of a machine. What it finds is in tests/contract/golden/answers/doctor.txt."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest

from tests.doors.engine import host_findings
from tests.support.fakenvml import FakeNvml
from tests.support.machines import built as built
from tests.support.machines import tree as tree

JUDGE = """
import json, os, sys, time
from gputui.engine.doctor import gpu_findings
from gputui.engine.doctor.nvml_query import NvmlQuery
told = []
for words, cuda_works in json.loads(sys.argv[1]):
    os.environ["FAKE_NVML"] = words
    seen = NvmlQuery().by(time.monotonic() + 90)
    told.append([[finding.level, finding.what] for finding in gpu_findings.findings(seen, cuda_works)])
print(json.dumps(told))
"""
# The machine, whether CUDA works, level and words of the finding.
DETAILS: tuple[tuple[str, bool | None, str, str], ...] = (
    ("lanes=4/16", True, "warning", "PCIe uses 4 of 16 lanes: copies take 4 times as long"),
    ("compute_mode=2", False, "error", "PROHIBITED"),
    ("compute_mode=3", True, "note", "only one process can use it"),
    ("compute_mode=3 procs=4194304", True, "error", "and process 4194304 does"),
    ("fabric=2", None, "error", "CUDA cannot start: the fabric manager has not set up"),
    ("fabric=1", True, "warning", "there is no NVLink between the GPUs"),
    ("nvlinks=18 nvlinks_down=6 fabric=3", True, "warning", "12 of 18 NVLinks are active"),
    ("nvlinks=12 nvlinks_down=8", True, "note", "4 of 12 NVLinks are active"),
    ("remap=1", True, "warning", "rows of its memory failed and will be replaced at the next reset"),
    ("remap=0,1", True, "warning", "could not be replaced"),
    ("retired=1", True, "warning", "pages of its memory failed and will be replaced at the next reset"),
    ("licensed=0", True, "warning", "no licence"),
    ("ecc=0", True, "note", "ECC is off"),
    ("name=NVIDIA_GeForce_GTX_1660_Ti capability=7.5", True, "ok", "float32, and float16 without tensor cores"),
    ("name=NVIDIA_T1000 capability=7.5", True, "ok", "float32, and float16 without tensor cores"),
)
SOUND = (
    "gpus=1", "nvlinks=18 fabric=3", "nvlinks=12 nvlinks_down=12", "licensed=1", "retired=0", "lanes=16/16",
    "fail=DeviceGetComputeMode:3 fail=DeviceGetNvLinkState:999 nvlinks=4 fail=DeviceGetRemappedRows:13",
)  # fmt: skip


def test_how_a_gpu_is_connected_locked_damaged_and_licensed(nvml: FakeNvml) -> None:
    def judged(cases: list[tuple[str, bool | None]], *, old: bool = False) -> list[list[list[str]]]:
        found: list[list[list[str]]] = nvml.run(JUDGE, "", json.dumps(cases), old=old)
        return found

    quiet = [(f"mem_used=0 {words}", works) for words, works, *_ in DETAILS]
    for (words, _, level, says), told in zip(DETAILS, judged(quiet), strict=True):
        assert [at for at, what in told if says in what] == [level], (words, told)
    sound: list[tuple[str, bool | None]] = [(f"mem_used=0 {words}", True) for words in SOUND]
    sound += [("mem_used=0 fabric=2", False)]  # CUDA's own error tells it
    for (words, _), told in zip(sound, judged(sound), strict=True):
        assert [level for level, _ in told] == ["ok"], (words, told)
    for told in judged([("mem_used=0 gpus=2", True)], old=True):  # a driver without these functions
        assert [level for level, _ in told] == ["ok"], told


# ---- host and environment ------------------------------------------------------------------------


def test_a_logout_that_ends_processes_is_warned_of_unless_the_user_lingers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host_findings, "LOGIND", tmp_path)
    monkeypatch.setattr(host_findings, "LINGER", tmp_path)

    def logout() -> list[str]:
        return [finding.level for finding in host_findings.findings(0) if finding.about == "logout"]

    for line, levels in (("#KillUserProcesses=yes", []), ("KillUserProcesses=yes", ["warning"])):
        (tmp_path / "logind.conf").write_text(f"[Login]\n{line}\n")
        assert logout() == levels
    (tmp_path / pwd.getpwuid(os.geteuid()).pw_name).touch()
    assert logout() == []
