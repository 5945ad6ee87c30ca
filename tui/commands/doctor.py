"""The command `gputui doctor`: prints the findings about this machine and about this terminal."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from ...engine import doctor
from ...engine.doctor import Finding
from ...engine.files.values import to_json
from ...engine.interpreter import interpreter
from ..base.errors import DONE, FAILED, Refused, clean
from ..printing.plain_tables import console
from ..wording.doctor import conclusion, sign, terminal, worst_first

STYLES = {"ok": "green", "note": "dim", "warning": "yellow", "error": "bold red"}


def examine(deep: bool, python: str | None = None) -> list[Finding]:
    """Return all findings, the worst first. `deep` also imports TensorFlow, of `python` or the Python that trains."""
    return worst_first([*doctor.examine(deep, python), *terminal(os.environ, shutil.get_terminal_size())])


def show_doctor(as_json: bool, deep: bool, python: str | None) -> int:
    """Print the findings. Return the exit code, which is FAILED if a finding prevents training. `deep` also imports
    TensorFlow. `python` is the path of the Python to examine, or of its environment. Raises Refused if it is blank."""
    if python is not None and not python.strip():
        raise Refused("--python needs the path of a Python, or of the folder of an environment that has one")
    findings = examine(deep, interpreter.file_of(python) if python else None)
    blocked = doctor.blocks(findings)
    if as_json:
        print(to_json({"blocked": blocked, "findings": [asdict(finding) for finding in findings]}))
    else:
        if sys.stdout.isatty():
            console().print(_table(findings))
        else:
            print(*(_lines(finding) for finding in findings), sep="\n")
        print(conclusion(findings))
    return FAILED if blocked else DONE


def _lines(finding: Finding) -> str:
    remedy = f"\n{'':21}{clean(finding.remedy)}" if finding.remedy else ""
    return f"{finding.level:<8} {finding.about:<11} {clean(finding.what)}{remedy}"


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        text = Text(clean(finding.what))
        if finding.remedy:
            text.append(f"\n{clean(finding.remedy)}", style="dim")
        level = Text(f"{sign(finding.level)} {finding.level}", style=STYLES[finding.level])
        table.add_row(level, finding.about, text)
    return table
