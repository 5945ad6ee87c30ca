"""The golden files of the contract, and the recorded home."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.doors.engine import __version__

HERE = Path(__file__).parent
INDENT, IS = "    ", "  =>  "


@dataclass(frozen=True)
class Golden:
    """golden(name, text) compares with golden/NAME; `pytest --snapshot-update` writes it."""

    updates: bool

    def expected(self, name: str) -> str | None:
        """What the file holds; None if it is to be written."""
        return None if self.updates else (HERE / "golden" / name).read_text(encoding="utf-8")

    def __call__(self, name: str, text: str) -> None:
        path = HERE / "golden" / name
        if self.updates:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    def questions(self, name: str) -> list[str]:
        """Those of golden/NAME, as `answers` has them, without its comments."""
        lines = (HERE / "golden" / name).read_text(encoding="utf-8").splitlines()
        return [line.partition(IS)[0] for line in lines if line and not line.startswith(("#", INDENT))]

    def answers(self, name: str, answer: Callable[[str], Iterable[str]]) -> None:
        """golden/NAME has questions with their answers: one line behind `=>`, or several below, indented. A new
        question is written there alone; `pytest --snapshot-update` writes its answer.
        """
        lines: list[str] = []
        for line in (HERE / "golden" / name).read_text(encoding="utf-8").splitlines():
            question = line.partition(IS)[0]
            if not line or line.startswith("#"):
                lines.append(line)
            elif not line.startswith(INDENT):
                said = list(answer(question))
                lines += [question + IS + said[0]] if len(said) == 1 else [question, *(INDENT + each for each in said)]
        self(name, "\n".join(lines) + "\n")


Answer = Callable[[Sequence[str]], Iterable[str]]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(bool(request.config.getoption("update_snapshots")))


@pytest.fixture
def played(golden: Golden) -> Callable[[str, Answer], None]:
    """played(NAME, answer) compares a file of golden/played with what the product says today.

    It has cases with an empty line between two. The lines of a case that begin with `>` are put in, and `answer` gives
    the others. A case is added by its lines with `>`, and `pytest --snapshot-update` writes the others.
    """

    def play(name: str, answer: Answer) -> None:
        cases = re.split(r"\n\n+", (HERE / "golden" / "played" / name).read_text(encoding="utf-8").strip())
        told = []
        for case in cases:
            given = [line for line in case.splitlines() if line[0] in ">#"]
            words = [line[2:] for line in given if line[0] == ">"]
            told.append("\n".join([*given, *(f"  {line}".rstrip() for line in answer(words))] if words else given))
        golden(f"played/{name}", "\n\n".join(told) + "\n")

    return play


@pytest.fixture(scope="session")
def recorded_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home that record.py has recorded, as it was when this version was released."""
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(HERE / "homes" / f"{__version__}.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.2 of Debian 12 has none yet
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return folder / "gputui"
