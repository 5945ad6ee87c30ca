"""The target `mlflow`: a run on an MLflow server or, without MLFLOW_TRACKING_URI, in a database in gputui's home. A
database of MLflow keeps one point for each metric, value, time and step, but a folder of files keeps what is sent
twice: what a run has already is left out of the first write after it was opened again.
Deferred imports: MLflow is an optional extra, and takes seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..files.places import home
from ..follow_targets import FOLDER
from ..runs.events import Outcome
from ..system import locks
from .following import FollowError
from .target import AboutRun, Point, without_login

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "gputui"  # unless MLFLOW_EXPERIMENT_NAME names another
# Its client would wait 120 s for an answer, and try 7 times: the follower itself waits and tries again.
TIMEOUTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
MOST_METRICS = 1000  # of one request (MLflow's limit)
LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000  # characters (MLflow's limits)
KEY_TAG, ROWS_TAG = "gputui.key", "gputui.rows"
_STATUS: Mapping[str, str] = {"ok": "FINISHED", "stopped": "KILLED", "timeout": "KILLED"}  # else FAILED
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")


class Mlflow:
    """One MLflow run, whose id is in `remote`. A tag has the number of its rows."""

    def __init__(self, remote: dict[str, Any]) -> None:
        self.remote, self.where = remote, ""
        self._client: MlflowClient | None = None
        self._may_have_more = False  # than its tag says

    def open(self, about: AboutRun, key: str) -> int | None:
        """The run gets the options as parameters, and the status running."""
        for name, value in TIMEOUTS.items():
            os.environ.setdefault(name, value)
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        if uri := os.environ.get("MLFLOW_TRACKING_URI", ""):
            return self._open_at(uri, about, key)
        folder = home() / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with locks.take(folder / "mlflow.lock"):  # two cannot create the tables of a database at the same time
                return self._open_at(f"sqlite:///{folder / 'mlflow.db'}", about, key)
        except locks.Taken:
            raise FollowError("another follower opens the database") from None

    def _open_at(self, uri: str, about: AboutRun, key: str) -> int:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        client = self._client = MlflowClient(tracking_uri=uri)
        if "run" not in self.remote:
            runs = client.search_runs([self._experiment(client)], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
            self.remote |= {"run": runs[0].info.run_id} if runs else {}
        self._may_have_more = "run" in self.remote
        if not self._may_have_more:
            created = client.create_run(self._experiment(client), run_name=about.id, tags={KEY_TAG: key})
            self.remote["run"] = str(created.info.run_id)
        run = client.get_run(self.remote["run"])
        self.where = f"{without_login(uri)} (experiment {run.info.experiment_id}, run {run.info.run_id})"
        options = {_named(name): str(value)[:LONGEST_PARAMETER] for name, value in about.options.items()}
        # MLflow cannot change parameters: those of the first launch stay.
        new = [Param(name, value) for name, value in options.items() if name not in run.data.params][:100]
        client.log_batch(run.info.run_id, params=new, tags=_tags(about))
        client.update_run(run.info.run_id, status="RUNNING")
        return int(run.data.tags.get(ROWS_TAG, "0"))

    def _experiment(self, client: MlflowClient) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        if os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return os.environ["MLFLOW_EXPERIMENT_ID"]
        present = client.get_experiment_by_name(name)
        return str(present.experiment_id if present is not None else client.create_experiment(name))

    def write(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric, RunTag

        client, run = self._client, self.remote["run"]
        assert client is not None
        for rows in _requests(points):
            metrics = [
                Metric(_named(name), float(value), round(point.t * 1000), point.step)
                for point in rows
                for name, value in point.figures.items()
            ]
            if self._may_have_more:
                names = {metric.key for metric in metrics}
                present = {name: {(each.timestamp, each.step) for each in client.get_metric_history(run, name)}
                           for name in names}  # fmt: skip
                metrics = [each for each in metrics if (each.timestamp, each.step) not in present[each.key]]
            tag = RunTag(ROWS_TAG, str(rows[-1].number + 1))
            client.log_batch(run, metrics=metrics, tags=[tag])
        self._may_have_more = False

    def end(self, about: AboutRun, outcome: Outcome) -> None:
        from mlflow.entities import RunTag

        assert self._client is not None
        self._client.log_batch(self.remote["run"], tags=[*_tags(about), RunTag("gputui.outcome", outcome)])
        self._client.set_terminated(self.remote["run"], status=_STATUS.get(outcome, "FAILED"))


def _requests(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the points in parts that one request can take."""
    part: list[Point] = []
    for point in points:
        if part and sum(len(each.figures) for each in part) + len(point.figures) > MOST_METRICS:
            yield part
            part = []
        part.append(point)
    if part:
        yield part


def _tags(about: AboutRun) -> list[Any]:
    from mlflow.entities import RunTag

    texts = {"gputui.run": about.id, "gputui.title": about.title, "gputui.tags": " ".join(about.tags)}
    texts |= {"mlflow.note.content": about.note} if about.note else {}
    return [RunTag(name, text[:LONGEST_TAG]) for name, text in texts.items()]


def _named(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:250]
