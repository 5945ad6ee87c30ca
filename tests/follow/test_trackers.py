"""What followers send to MLflow, W&B and Trackio, with stand-ins for the libraries; tests/extras has the real ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from gputui.engine.follow.place import FollowError
from gputui.engine.follow.points import Point
from gputui.engine.follow.target import AboutRun
from gputui.engine.follow.to_mlflow import Mlflow
from gputui.engine.follow.to_trackio import Trackio
from gputui.engine.follow.to_wandb import Wandb
from gputui.engine.system import locks


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


def test_mlflow_gets_a_run_with_the_options_as_parameters(
    mlflow: type[MlflowClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:word@host:5000")
    target = Mlflow({})
    assert target.open(about(tmp_path, **{"train.epochs": 3, "a@b": "x" * 7000}), KEY) == 0
    assert (target.where, target.remote) == ("http://host:5000 (experiment 3, run new)", {"run": "new"})
    params = [Param("train.epochs", "3"), Param("a_b", "x" * 6000)]
    assert mlflow.calls == [
        ("client", "http://me:word@host:5000"), ("experiment", "gputui"), ("new experiment", "gputui"),
        ("search", ["3"], "tags.`gputui.key` = '0123abcd'", 1),
        ("experiment", "gputui"), ("new experiment", "gputui"),
        ("create", "3", "2026-one", {"gputui.key": KEY}),
        ("log", "new", {"params": params, "tags": TAGS}), ("status", "new", "RUNNING"),
    ]  # fmt: skip


def test_mlflow_goes_on_in_the_run_of_an_earlier_follower(
    mlflow: type[MlflowClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    mlflow.known, mlflow.tags, mlflow.params = {KEY: "old"}, {"gputui.rows": "7"}, {"a": "1"}
    mlflow.experiment = SimpleNamespace(experiment_id=9)
    options = {"a": 2, **{f"b{number}": 0 for number in range(101)}}
    target = Mlflow({})
    assert target.open(about(tmp_path, **options), KEY) == 7
    assert ("experiment", "mine") in mlflow.calls
    assert ("search", ["9"], "tags.`gputui.key` = '0123abcd'", 1) in mlflow.calls
    ((_, run, what),) = (call for call in mlflow.calls if call[0] == "log")
    assert (run, len(what["params"]), what["params"][0]) == ("old", 100, Param("b0", "0"))
    mlflow.calls.clear()
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "4")
    assert Mlflow({"run": "noted"}).open(about(tmp_path), KEY) == 7
    assert [call[0] for call in mlflow.calls] == ["client", "log", "status"], "it is not searched for"
    Mlflow({}).open(about(tmp_path), KEY)
    assert ("search", ["4"], "tags.`gputui.key` = '0123abcd'", 1) in mlflow.calls


def test_without_an_address_mlflow_is_a_database_of_the_home(
    mlflow: type[MlflowClient], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Mlflow({})
    target.open(about(tmp_path), KEY)
    assert mlflow.calls[0] == ("client", f"sqlite:///{home}/follow/mlflow.db")
    taken = locks.take(home / "follow/mlflow.lock")
    monkeypatch.setattr(locks.take, "__defaults__", (1, False))
    with pytest.raises(FollowError, match="another follower opens the database"):
        target.open(about(tmp_path), KEY)
    taken.release()


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


def test_wandb_is_online_if_there_is_a_server_and_says_how_many_rows_it_has(
    wandb: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value, mode in (("WANDB_API_KEY", "x", "online"), ("WANDB_BASE_URL", "x", "online"),
                              ("WANDB_MODE", "shared", "shared")):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            patched.setenv("WANDB_PROJECT", "mine")
            patched.setenv("WANDB_DIR", str(tmp_path / "there"))
            target = Wandb({})
            assert target.open(about(tmp_path), KEY) == 4
            assert (target.where, target.remote) == ("https://host/run", {})
            how = wandb.begun[-1]
            assert (how["mode"], how["project"], how["dir"]) == (mode, "mine", str(tmp_path / "there"))


def test_an_offline_run_that_was_cut_off_is_written_again_and_the_one_before_removed(
    wandb: SimpleNamespace, tmp_path: Path
) -> None:
    target = Wandb({})
    target.open(about(tmp_path), KEY)
    before = Path(target.where)
    target.open(about(tmp_path), KEY)
    assert wandb.runs[0].calls[-1] == ("finish", 1), "the call that failed was of this run"
    assert (before.exists(), Path(target.where).exists()) == (False, True)
    for name in (f"run-1-{KEY}", "offline-run-1-other"):
        other = tmp_path / name
        other.mkdir()
        Wandb({"folder": str(other)}).open(about(tmp_path), KEY)
        assert other.exists(), "it is none of its own"
    wandb.fails = True
    with pytest.raises(OSError, match="refused"):
        Wandb({}).open(about(tmp_path), KEY)
    assert wandb.torn == 1


# ---- Trackio -------------------------------------------------------------------------------------


@pytest.fixture
def trackio(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    for name in ("TRACKIO_PROJECT", "TRACKIO_WRITE_TOKEN", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    seen = SimpleNamespace(place=(None, None), rows=[], client=[], sent=[])

    class Client:
        def __init__(self, place: str, **how: Any) -> None:
            seen.client.append((place, how))

        def predict(self, **what: Any) -> None:
            seen.sent.append(what)

    utils = ModuleType("trackio.utils")
    utils.__dict__.update(
        resolve_space_id_and_server_url=lambda *_: seen.place,
        parse_trackio_server_url=lambda url: (url.partition("?")[0], url.partition("?")[2] or None),
        TRACKIO_DIR=Path("/trackio"),
        RESERVED_KEYS=["step", "loss"],
    )
    monkeypatch.setitem(sys.modules, "trackio.utils", utils)
    stand_in(monkeypatch, "trackio", RemoteClient=Client, utils=utils)
    stand_in(
        monkeypatch,
        "trackio.sqlite_storage",
        SQLiteStorage=SimpleNamespace(bulk_log=lambda **row: seen.rows.append(row)),
    )
    return seen


CONFIG = {"epochs": 3, "title": "one: xla", "tags": ["best", "slow"], "note": "after the fix"}


def test_trackio_on_this_machine_gets_rows_with_ids_of_their_own(trackio: SimpleNamespace, tmp_path: Path) -> None:
    target = Trackio({})
    assert target.open(about(tmp_path, epochs=3), KEY) is None
    assert (target.where, trackio.client) == ("/trackio", [])
    target.write(POINTS)
    (sent,) = trackio.rows
    assert sent == {
        "project": "gputui", "run": "2026-one", "run_id": KEY,
        "metrics_list": [{"__loss": 0.5, "gpu0_busy": 1}, {"result/acc@1": 0.25}], "steps": [10, 20],
        "timestamps": ["1970-01-01T00:00:01.500000+00:00", "1970-01-01T00:00:02+00:00"], "config": CONFIG,
        "log_ids": [f"{KEY}-5", f"{KEY}-6"],
    }  # fmt: skip
    target.end(about(tmp_path, epochs=3), "oom")
    last = trackio.rows[-1]
    assert (last["log_ids"], last["config"]) == ([f"{KEY}-6"], CONFIG | {"outcome": "oom"})
    renamed = Trackio({"run": "first name"})
    renamed.open(about(tmp_path), KEY)
    renamed.end(about(tmp_path), "ok")
    assert (len(trackio.rows), renamed.remote["run"]) == (2, "first name"), "without a row there is nothing to send"


def test_trackio_elsewhere_gets_the_rows_with_a_token(
    trackio: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_PROJECT", "mine")
    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", "of the variable")
    monkeypatch.setenv("HF_TOKEN", "hf")
    for place, where, token in (
        (("me/space", None), "me/space", "of the variable"), ((None, "http://host?t"), "http://host", "t"),
        ((None, "http://host"), "http://host", "of the variable"),
    ):  # fmt: skip
        trackio.place = place
        target = Trackio({})
        target.open(about(tmp_path, epochs=3), KEY)
        assert (target.where, trackio.client[-1]) == (where, (where, {"write_token": token, "verbose": False}))
    target.write(POINTS[:1])
    row = {"number": 5, "step": 10, "metrics": {"__loss": 0.5, "gpu0_busy": 1},
           "timestamp": "1970-01-01T00:00:01.500000+00:00"}  # fmt: skip
    log = {"project": "mine", "run": "2026-one", "run_id": KEY, "log_id": f"{KEY}-5", "config": CONFIG}
    assert (trackio.rows, trackio.sent) == ([], [{"api_name": "/bulk_log", "logs": [log | row], "hf_token": "hf"}])
