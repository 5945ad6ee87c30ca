"""What followers write: TensorBoard's files, the text of Prometheus; MLflow and W&B by stand-ins."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.doors.engine import AboutRun, Mlflow, Point, Prometheus, Wandb
from tests.doors.engine import to_prometheus_VARIABLE as VARIABLE
from tests.doors.tui import tui_cli as cli
from tests.support.followed import Written, follow
from tests.support.small_disk import small_disk as small_disk


@pytest.fixture
def written(home: Path) -> Written:
    return Written(home / "runs" / "20260101-000000-small")


def test_prometheus_reads_the_newest_figures_with_labels(
    written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written.train([1, 50])
    written.finish("ok", 50)
    written.events({"type": "progress", "epoch": 2, "step": 60, "loss": None, "metrics": {'odd "\\name"\n': 1.0}})
    assert follow(written.run, Prometheus({}), "prometheus") == "done"
    text = written.run.file("follow/gputui.prom").read_text()
    run = f'run="{written.run.id}"'
    for line in (
        f"gputui_step{{{run}}} 60",
        f'gputui_gpu_busy{{{run},gpu="0"}} 0.5',
        f"gputui_loss{{{run}}} 0.02",
        f'gputui_metric{{{run},metric="accuracy"}} 0.98',
        f'gputui_metric{{{run},metric="odd \\"\\\\name\\"\\n"}} 1.0',
        f'gputui_result{{{run},figure="step_ms.p50"}} 2.5',
        f'gputui_ended{{{run},outcome="ok"}} 1',
        "# TYPE gputui_metric gauge",
    ):
        assert f"{line}\n" in text
    assert text.count("# TYPE gputui_metric ") == 1
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert follow(written.run, target := Prometheus({}), "other") == "done"
    assert Path(target.where).parent == tmp_path
    assert Path(target.where).stat().st_mode & 0o777 == 0o644


def test_the_command_writes_all_and_lists_the_followers(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    written.train(range(1, 20))
    written.finish("stopped", 19)
    for _ in range(2):  # the second time there is nothing to write
        assert cli.run(["follow", written.run.id, "--to", "tensorboard", "--to", "prometheus"]) == 0
        told = capsys.readouterr().out.splitlines()
        assert sorted(line.partition(": ")[2].partition(" to ")[0] for line in told) == ["done, 20 rows written"] * 2
    assert cli.run(["follow"]) == 0
    assert sorted(told) == capsys.readouterr().out.splitlines()
    path = written.run.file("follow/tensorboard.json")
    place = json.loads(path.read_text())
    for state, problem, words in (
        ("given_up", "refused", "gave up: refused"), ("waiting", "refused", "has ended before the run"),
    ):  # fmt: skip
        path.write_text(json.dumps(place | {"state": state, "problem": problem}))
        assert cli.run(["follow"]) == 0
        assert f"tensorboard: {words}, 20 rows" in capsys.readouterr().out
    path.write_text("{")
    assert cli.run(["follow", written.run.id, "--to", "tensorboard"]) == 1
    assert "is damaged: remove it" in capsys.readouterr().out


# ---- MLflow and W&B ---------------------------------------------------------------------


class Param(NamedTuple):
    key: str
    value: str


class RunTag(NamedTuple):
    key: str
    value: str


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


POINTS = [
    Point(5, 1.5, 10, {"loss": 0.5, "gpu0_busy": 1}),
    Point(6, 2.0, 20, {"result/acc@1": 0.25}, is_result=True),
]
KEY = "0123abcd"


def about(folder: Path, **options: Any) -> AboutRun:
    return AboutRun(folder, "2026-one", "one: xla", "one", options, ("best", "slow"), "after the fix")


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, module)


# ---- MLflow --------------------------------------------------------------------------------------


class MlflowClient:
    """A server that keeps what it is told; `known` has the id of a run by its key."""

    calls: list[tuple[Any, ...]] = []
    known: dict[str, str] = {}
    tags: dict[str, str] = {}
    params: dict[str, str] = {}
    experiment: Any = None
    present: list[Any] = []

    def __init__(self, tracking_uri: str) -> None:
        self.calls.append(("client", tracking_uri))

    def get_experiment_by_name(self, name: str) -> Any:
        self.calls.append(("experiment", name))
        return self.experiment

    def create_experiment(self, name: str) -> int:
        self.calls.append(("new experiment", name))
        return 3

    def search_runs(self, experiments: list[str], text: str, max_results: int) -> list[Any]:
        self.calls.append(("search", experiments, text, max_results))
        return [SimpleNamespace(info=SimpleNamespace(run_id=run)) for run in self.known.values()][:max_results]

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        self.calls.append(("create", experiment, run_name, tags))
        return SimpleNamespace(info=SimpleNamespace(run_id="new"))

    def get_run(self, run: str) -> Any:
        return SimpleNamespace(
            info=SimpleNamespace(run_id=run, experiment_id="3"),
            data=SimpleNamespace(tags=self.tags, params=self.params),
        )

    def log_batch(self, run: str, **what: Any) -> None:
        self.calls.append(("log", run, what))

    def get_metric_history(self, run: str, key: str) -> list[Any]:
        return [each for each in self.present if each.key == key]

    def update_run(self, run: str, status: str) -> None:
        self.calls.append(("status", run, status))

    def set_terminated(self, run: str, status: str) -> None:
        self.calls.append(("end", run, status))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> type[MlflowClient]:
    client = type("Client", (MlflowClient,), {"calls": [], "known": {}, "tags": {}, "params": {}, "experiment": None})
    stand_in(monkeypatch, "mlflow", MlflowClient=client)
    stand_in(monkeypatch, "mlflow.entities", Param=Param, RunTag=RunTag, Metric=Metric)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID", "GIT_PYTHON_REFRESH",
                 "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):  # fmt: skip
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return client


TAGS = [RunTag("gputui.run", "2026-one"), RunTag("gputui.title", "one: xla"), RunTag("gputui.tags", "best slow"),
        RunTag("mlflow.note.content", "after the fix")]  # fmt: skip


def test_rows_reach_mlflow_in_requests_of_a_thousand_values_without_those_that_it_has(
    mlflow: type[MlflowClient], tmp_path: Path
) -> None:
    target = Mlflow({"run": "r"})
    target.open(about(tmp_path), KEY)
    mlflow.calls.clear()
    mlflow.present = [Metric("gpu0_busy", 1.0, 1500, 10), Metric("loss", 0.25, 1500, 9)]
    target.write(POINTS)
    assert mlflow.calls == [
        ("log", "r", {
            "metrics": [Metric("loss", 0.5, 1500, 10), Metric("result/acc_1", 0.25, 2000, 20)],
            "tags": [RunTag("gputui.rows", "7")],
        })
    ]  # fmt: skip
    mlflow.calls.clear()
    many = [Point(number, 1.0, number, {f"f{at}": 0.0 for at in range(count)}) for number, count in
            enumerate((500, 500, 1, 1200, 3))]  # fmt: skip
    target.write(many)
    sent = [(len(what["metrics"]), what["tags"][0].value) for _, _, what in mlflow.calls]
    assert sent == [(1000, "2"), (1, "3"), (1200, "4"), (3, "5")]
    mlflow.calls.clear()
    for outcome, status in (("ok", "FINISHED"), ("stopped", "KILLED"), ("timeout", "KILLED"), ("oom", "FAILED")):
        target.end(about(tmp_path), outcome)  # type: ignore[arg-type]
        assert mlflow.calls[-2:] == [
            ("log", "r", {"tags": [*TAGS, RunTag("gputui.outcome", outcome)]}), ("end", "r", status)
        ]  # fmt: skip


# ---- W&B -----------------------------------------------------------------------------------------


class WandbRun:
    """A run of W&B, and the calls that it gets."""

    def __init__(self, folder: Path) -> None:
        self.dir, self.url, self.step = str(folder / "files"), "https://host/run", 4
        self.summary: dict[str, Any] = {}
        self.calls: list[tuple[Any, ...]] = []

    def define_metric(self, *names: str, step_metric: str) -> None:
        self.calls.append(("define", *names, step_metric))

    def log(self, row: dict[str, Any], step: int) -> None:
        self.calls.append(("log", row, step))

    def finish(self, exit_code: int) -> None:
        self.calls.append(("finish", exit_code))


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    seen = SimpleNamespace(begun=[], torn=0, runs=[], fails=False)

    def init(**how: Any) -> WandbRun:
        seen.begun.append(how)
        if seen.fails:
            raise OSError("refused")
        folder = tmp_path / f"offline-run-{len(seen.begun)}-{KEY}"
        folder.mkdir(exist_ok=True)
        run = WandbRun(folder)
        seen.runs.append(run)
        return run

    def teardown() -> None:
        seen.torn += 1

    stand_in(monkeypatch, "wandb", init=init, teardown=teardown, Settings=dict)
    return seen


def test_wandb_gets_each_row_with_its_time_and_the_outcome(wandb: SimpleNamespace, tmp_path: Path, home: Path) -> None:
    target = Wandb({})
    assert target.open(about(tmp_path, epochs=3), KEY) == 0
    (how,) = wandb.begun
    assert how.pop("settings") == {
        "console": "off", "silent": True, "x_disable_stats": True, "disable_git": True, "save_code": False,
        "init_timeout": 30.0,
    }  # fmt: skip
    assert how == {
        "project": "gputui", "id": KEY, "name": "2026-one", "dir": f"{home}/follow", "mode": "offline",
        "resume": "allow", "config": {"epochs": 3, "title": "one: xla"}, "tags": ["best", "slow"],
        "notes": "after the fix",
    }  # fmt: skip
    assert (home / "follow").is_dir()
    (run,) = wandb.runs
    assert target.where == target.remote["folder"] == str(Path(run.dir).parent)
    target.write(POINTS)
    target.end(about(tmp_path), "ok")
    assert run.calls == [
        ("define", "*", "step"),
        ("log", {"loss": 0.5, "gpu0_busy": 1, "step": 10, "_timestamp": 1.5}, 5),
        ("log", {"result/acc@1": 0.25, "step": 20, "_timestamp": 2.0}, 6), ("finish", 0),
    ]  # fmt: skip
    assert run.summary == {"result/acc@1": 0.25, "outcome": "ok"}
    target.open(about(tmp_path), KEY)
    target.end(about(tmp_path), "oom")
    assert wandb.runs[-1].calls[-1] == ("finish", 1)


# ---- TensorBoard by TensorFlow -------------------------------------------------------------------


@pytest.mark.usefixtures("cpus")
def test_tensorboard_reads_the_same_figures(written: Written, tmp_path: Path) -> None:
    written.train([4, 8])
    written.finish("ok", 8)
    assert cli.run(["history", written.run.id, "--tensorboard", "-o", str(tmp_path / "board")]) == 0
    import tensorflow as tf
    from tensorflow.core.util import event_pb2

    (path,) = (tmp_path / "board").iterdir()
    read: list[Any] = [event_pb2.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    assert read[0].file_version == "brain.Event:2"
    told = [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in read[2:4]]
    assert [step for step, _ in told] == [4, 8]
    assert [figures["loss"] for _, figures in told] == [0.25, 0.125]
    assert told[0][1]["gpu0_busy"] == pytest.approx(0.04)
    about = {value.tag: value.metadata.summary_description for event in read[2:3] for value in event.summary.value}
    assert "samples trained in a second" in about["samples_per_second"]
    assert read[2].summary.value[0].metadata.plugin_data.plugin_name == "scalars"
