"""`gputui prepare` in the process of the tests, which has TensorFlow: a worker that is no process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Manifest, Options, Preset, preparing
from tests.doors.engine import prepare_request as requests


class InProcess:
    """The interface of engine/prepare/preparing.py."""

    def __init__(self, _python: str, request: Mapping[str, Any], _log: Path) -> None:
        from tests.doors.trainer import TrainerError, work

        self.answers: list[Any] = []
        self.request = work.read(json.dumps(request))
        try:
            self.samples = work.opened(self.request)
            self.answers.append(work.described(self.samples))
        except TrainerError as fault:
            self.answers.append({"error": fault.message, "hint": fault.hint})

    def send(self, command: Mapping[str, Any]) -> None:
        from tests.doors.trainer import work

        work.obey(command, self.samples, self.request, self.answers.append)

    def answer(self) -> Any:
        return self.answers.pop(0)

    def end(self) -> None:
        pass


def _answered(workers: Sequence[InProcess]) -> Iterator[tuple[InProcess, Any]]:
    while True:
        for worker in workers:
            while worker.answers:
                yield worker, worker.answer()


class Preparing:
    """Prepares data in folders of its own. `said` has what was said, in the last preparation."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, ""

    def __call__(self, options: Options, name: str = "ready", **given: Any) -> tuple[Manifest, Path]:
        said: list[str] = []
        asked = self.request(options, name, **given)
        manifest = preparing.prepare(asked, said.append, lambda _progress: None)
        self.said = "\n".join(said)
        return manifest, asked.folder

    def request(self, options: Options, name: str = "ready", **given: Any) -> requests.Request:
        given = {"format": "tfrecord", "dtype": None, "size": None} | given
        return requests.of(Preset("mine", options), self.folder / name, given)


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preparing:
    """prepared(options, dtype="float32", ...): the manifest and the folder of their data, prepared in this process."""
    monkeypatch.setattr(preparing, "Worker", InProcess)
    monkeypatch.setattr(preparing, "answered", _answered)
    return Preparing(tmp_path)
