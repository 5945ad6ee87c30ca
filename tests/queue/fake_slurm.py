"""Stand-ins for sbatch, squeue, sacct, scancel and scontrol: scripts on PATH that keep jobs as files in a folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

PENDING, HELD = "PENDING|Resources|N/A|", "PENDING|JobHeldUser|N/A|"
SCRIPTS = {
    "sbatch": """
number=$((100 + $(ls jobs | wc -l)))
printf '%s\\n' "$@" > $number.submitted
echo '{pending}' > jobs/$number
echo $number
""",
    "squeue": """
for job in jobs/*; do [ -e "$job" ] && echo "$(basename "$job")|$(cat "$job")"; done
exit 0
""",
    "sacct": """
[ -e accounts ] || {{ echo 'Slurm accounting storage is disabled' >&2; exit 1; }}
cat accounts
""",
    "scancel": """
for last; do :; done
case "$*" in *--signal*) ;; *) echo 'CANCELLED|None|N/A|' > "jobs/$last" ;; esac
""",
    "scontrol": """
case "$1" in hold) echo '{held}' > "jobs/$2" ;; release) echo '{pending}' > "jobs/$2" ;; esac
""",
}
BEGIN = """#!/bin/sh
cd {folder} || exit 1
echo "{name} $*" >> calls
[ -e {name}.fails ] && {{ cat {name}.fails >&2; exit 1; }}
"""


@dataclass(frozen=True)
class FakeSlurm:
    """The stand-ins; `folder` has the jobs, what was submitted, the calls, and `accounts` of older jobs."""

    folder: Path

    @classmethod
    def install(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
        """Put the stand-ins first on PATH."""
        (folder / "jobs").mkdir(parents=True)
        (folder / "bin").mkdir()
        for name, script in SCRIPTS.items():
            file = folder / "bin" / name
            file.write_text(BEGIN.format(folder=folder, name=name) + script.format(pending=PENDING, held=HELD))
            file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        return cls(folder)

    def submitted(self, job: str) -> list[str]:
        """The arguments with which a job was submitted, without those of every job."""
        return (self.folder / f"{job}.submitted").read_text().splitlines()

    def is_now(self, job: str, state: str, reason: str = "None", starts: str = "N/A", nodes: str = "") -> None:
        """Give a job another state."""
        (self.folder / "jobs" / job).write_text(f"{state}|{reason}|{starts}|{nodes}\n")

    def forgets(self, job: str) -> None:
        (self.folder / "jobs" / job).unlink()

    def fails(self, program: str, message: str = "") -> None:
        """Let a program fail with this message from now on; without a message it works again."""
        file = self.folder / f"{program}.fails"
        file.write_text(message) if message else file.unlink()

    def calls(self, program: str) -> list[str]:
        """The arguments of each call of a program."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{program} ")]
