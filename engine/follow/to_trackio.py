"""The target `trackio`: a Trackio project on this machine, on a self-hosted server, or in a Space of Hugging Face. Each
row has an id, by which Trackio leaves out a row that it has. Its public `log` gives ids by chance, so that the function
below it is called, as Trackio's own threads do.
Deferred imports: Trackio is an optional extra, and takes seconds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ..runs.events import Outcome
from .target import AboutRun, Point

PROJECT = "gputui"  # unless TRACKIO_PROJECT names another


class Trackio:
    """Writes to the run whose id is the follower's key. `remote` has the last row, for the end."""

    def __init__(self, remote: dict[str, Any]) -> None:
        self.remote, self.where = remote, ""
        self._key, self._config = "", dict[str, Any]()
        self._client: Any = None

    def open(self, about: AboutRun, key: str) -> int | None:
        import trackio
        from trackio import utils

        self._key, self._config = key, _config(about)
        self.remote.setdefault("run", about.id)
        space, server = utils.resolve_space_id_and_server_url(None, None)
        self.where = space or (utils.parse_trackio_server_url(server)[0] if server else str(utils.TRACKIO_DIR))
        if space or server:
            token = utils.parse_trackio_server_url(server)[1] if server else None
            token = token or os.environ.get("TRACKIO_WRITE_TOKEN")
            self._client = trackio.RemoteClient(space or self.where, write_token=token, verbose=False)
        return None

    def write(self, points: Sequence[Point]) -> None:
        rows = [_row(point) for point in points]
        self._send(rows)
        self.remote["last"] = rows[-1]

    def end(self, about: AboutRun, outcome: Outcome) -> None:
        """The config can only be replaced with a row, which Trackio then leaves out."""
        self._config = _config(about) | {"outcome": outcome}
        if "last" in self.remote:
            self._send([self.remote["last"]])

    def _send(self, rows: Sequence[dict[str, Any]]) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        project = os.environ.get("TRACKIO_PROJECT") or PROJECT
        run, ids = self.remote["run"], [f"{self._key}-{row['number']}" for row in rows]
        if self._client is None:
            lists = {name: [row[key] for row in rows] for name, key in (
                ("metrics_list", "metrics"), ("steps", "step"), ("timestamps", "timestamp"))}  # fmt: skip
            SQLiteStorage.bulk_log(
                project=project, run=run, run_id=self._key, config=self._config, log_ids=ids, **lists
            )
            return
        logs = [
            {"project": project, "run": run, "run_id": self._key, "log_id": log_id, "config": self._config, **row}
            for log_id, row in zip(ids, rows, strict=True)
        ]
        self._client.predict(api_name="/bulk_log", logs=logs, hf_token=os.environ.get("HF_TOKEN"))


def _row(point: Point) -> dict[str, Any]:
    from trackio.utils import RESERVED_KEYS

    figures = {f"__{name}" if name in RESERVED_KEYS else name: value for name, value in point.figures.items()}
    t = datetime.fromtimestamp(point.t, UTC).isoformat()
    return {"number": point.number, "step": point.step, "metrics": figures, "timestamp": t}


def _config(about: AboutRun) -> dict[str, Any]:
    return {**about.options, "title": about.title, "tags": list(about.tags), "note": about.note}
