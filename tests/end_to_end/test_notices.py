"""Notices: what is sent at the end of a run, a proof and the queue, and what a failure to send it changes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doors.engine import (
    BaselineFailed,
    LineUp,
    Notice,
    Run,
    Stop,
    Targets,
    as_markdown,
    comparison,
    events,
    export_folder,
    folder,
    launch,
    places,
    presets,
    runs,
    sending,
    targets,
    titles,
    trial_preset,
)
from tests.doors.engine import proof_process as process
from tests.doors.engine import proof_request as request
from tests.doors.engine import runner as empty_notice
from tests.doors.tui import shareable
from tests.support.front_door import events as read_lines
from tests.support.front_door import gputui, happened
from tests.support.proving import HERE
from tests.support.queued import Trainings, add, no_runner, waiting

SECRET = "T0KEN"
DONE = Notice("run", "ok", id="20260101-a", title="a: xla", seconds=75.0, metrics={"loss": 0.25}, host="box")


@dataclass
class Server:
    """A server that plays ntfy, Slack and broken ones: the path of the address says what it does."""

    port: int = 0
    received: list[tuple[str, str, str]] = field(default_factory=list)  # path, type and content
    leave: threading.Event = field(default_factory=threading.Event)

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def answer(self, path: str, kind: str, content: str) -> int:
        if path.startswith("/services/") and (kind != "application/json" or list(json.loads(content)) != ["text"]):
            return 400  # as Slack: invalid_payload
        return {"/broken": 500, "/moved": 302}.get(path, 200)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            state.received.append((self.path, self.headers["Content-Type"], content))
            if self.path.startswith("/hangs"):
                state.leave.wait(60)
            self.send_response(state.answer(*state.received[-1]))
            if self.path == "/moved":
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            while self.path == "/drips" and not state.leave.wait(0.2):
                self.wfile.write(b"\n")

        def log_message(self, *_given: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.daemon_threads = True
    state.port = web.server_address[1]
    thread = threading.Thread(target=web.serve_forever)
    thread.start()
    yield state
    state.leave.set()
    web.shutdown()
    thread.join()
    web.server_close()


def sent(url: str = "", command: str = "", form: str = "text") -> list[str]:
    return sending.send(Targets(command, url, form, "end"), DONE)


def settings(text: str) -> None:
    file = places.settings_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_each_failure_is_one_line_without_the_address_and_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sending, "LIMIT_SECONDS", 1.0)
    begun = time.monotonic()
    by = "the notice was not sent by notify."
    assert sent(server.address(SECRET)) == []
    assert sent(server.address("broken")) == [f"{by}url: the server answered 500 Internal Server Error"]
    assert sent(server.address("moved"))[0].endswith("302 Found; give the address to which it leads")
    assert sent("http://127.0.0.1:1/T0KEN") == [f"{by}url: Connection refused"]
    assert sent(f"http://127.0.0.1:port/{SECRET}") == [f"{by}url: the address cannot be used (InvalidURL)"]
    assert sent("$NOWHERE") == [f"{by}url: the variable NOWHERE is not set where the run was started"]
    monkeypatch.setenv("PLACE", "file:///etc/passwd")
    assert sent("${PLACE}") == [f"{by}url: the address does not begin with https:// or http://"]
    assert sent(command=f"echo first >&2; echo why >&2; exit 3 # {SECRET}") == [
        f"{by}command: it ended with code 3: why"
    ]
    assert sent(command="yes | head -c 200000 >&2") == [], "more than a pipe holds"
    assert sent(command="kill -9 $$") == [f"{by}command: signal 9 ended it"]
    child = tmp_path / "child"
    lines = sent(server.address("hangs"), f"(sleep 3; touch {child}) & wait")
    assert lines == [f"{by}url: {sending._LIMIT}", f"{by}command: {sending._LIMIT}, and was ended"]
    assert sent(server.address("drips")) == []  # it has answered
    assert time.monotonic() - begun < 8
    assert not any(SECRET in line for line in lines)
    time.sleep(max(0.0, 3.5 - (time.monotonic() - begun)))
    assert not child.exists(), "the children of the command are ended, too"


def test_a_command_runs_in_the_folder_of_its_run_with_the_notice_on_its_standard_input(tmp_path: Path) -> None:
    where = tmp_path / "run of mine"
    where.mkdir()
    command = f"pwd > {tmp_path}/pwd; cat > {tmp_path}/json; echo $GPUTUI_NOTICE_TITLE > {tmp_path}/title"
    for given, place in ((str(where), where), (str(tmp_path / "gone"), Path("/")), ("", Path("/"))):
        made = replace(DONE, folder=given)
        assert sending.send(Targets(command, "", "text", "end"), made) == []
        assert (tmp_path / "pwd").read_text() == f"{place}\n"
        assert json.loads((tmp_path / "json").read_text()) == made.as_dict()
        assert (tmp_path / "title").read_text() == "a: xla\n"


def test_the_settings_give_what_the_preset_does_not_and_their_faults_are_named() -> None:
    settings("notify:\n  bell: false\n  url: https://a/b\n  when: failure\n")
    assert targets.of_options({"notify.command": "x"}) == Targets("x", "https://a/b", "text", "failure")
    assert not targets.of_options({}).wants(failed=False)
    assert targets.of_options({"notify.when": "end", "notify.url": "http://c"}) == Targets(
        "", "http://c", "text", "end"
    )
    settings("notify:\n  url: [1]\n")
    assert not targets.of_options({"notify.when": "never"}).wants(failed=True)
    (line,) = sending.send_to(lambda: targets.of_options({}), lambda: DONE)
    assert line == f"no notice was sent: {places.settings_file()}:2: notify.url must be a text"
    refused = gputui("--preset", "quickstart", "--set", "notify.url=ftp://a", "--dry-run")
    assert refused.returncode == 2
    assert "give an address that begins with https://, http:// or $NAME" in refused.stderr


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.nightly
def test_a_server_that_hangs_changes_nothing_of_a_run(server: Server, tmp_path: Path) -> None:
    """The result is written before, the command gets the notice, and nobody but the run's own files has the address."""
    settings(f"notify: {{url: '{server.address('hangs/' + SECRET)}'}}\n")
    command = f"cat > {tmp_path}/notice.json; echo $GPUTUI_NOTICE_ID > {tmp_path}/id; : {SECRET}"
    sets = ("epochs=2", "steps_per_epoch=20", f"notify.command={command}")
    done = gputui("--preset", "quickstart", "--json", *(word for each in sets for word in ("--set", each)))
    assert done.returncode == 0, done.stderr
    run = runs.find("latest")
    (warning,) = [
        event for event in read_lines(done.stdout) if event["type"] == "warning" and event["kind"] == "notice"
    ]
    assert warning["message"] == f"the notice was not sent by notify.url: {sending._LIMIT}"
    assert warning["t"] - run.file("result.json").stat().st_mtime > 0.9 * sending.LIMIT_SECONDS
    assert run.state == "ok"
    got = json.loads((tmp_path / "notice.json").read_text())
    assert (got["outcome"], got["failed"], got["metrics"]) == ("ok", False, run.whole_result["metrics"])
    best = min((event["metrics"]["val_loss"], event["epoch"]) for event in happened(run, "epoch"))
    assert (got["best_metric"], got["best"], got["best_epoch"]) == ("val_loss", *best)
    assert (tmp_path / "id").read_text() == f"{run.id}\n"
    assert [path.name for path in run.path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == [
        "preset.yaml"
    ]
    assert SECRET not in done.stdout + titles.title(run)


def test_secrets_are_in_no_export_report_or_trial(tmp_path: Path) -> None:
    private = [f"notify.url=https://a/{SECRET}", f"notify.command=echo {SECRET}  {'x' * 120}", "xla=false"]
    preset = presets.resolve("quickstart", private)
    export_folder.export(preset, tmp_path / "out")
    assert not any(SECRET in path.read_text() for path in (tmp_path / "out").iterdir() if path.is_file())
    file = tmp_path / "private.yaml"
    file.write_text(preset.to_yaml())
    record = folder.empty_record(tmp_path, request.of_change(str(file), ["steps_per_execution=2"]))
    assert SECRET in record.preset_before
    report = as_markdown(record)
    assert SECRET not in report + str(shareable(asdict(record)))
    assert "seed:" in report
    assert SECRET not in launch.origin_of(preset) + launch.title_of(preset)
    private_run, other = (launch.create(launch.settle(each, tmp_path)) for each in (preset, presets.defaults()))
    rows = [row.key for row in comparison.compare(LineUp((private_run, other))).options]
    assert "compile.xla" in rows
    assert not [key for key in rows if key.startswith("notify")]
    for seconds in (1.0, None):
        trial = trial_preset.as_trial(preset, 1, seconds, HERE, most_seconds=60.0, length=(1, 2))
        assert SECRET not in trial.to_yaml()
        assert trial.options.notify.when == "never"


def ended(outcome: events.Outcome, kind: str = "", **files: Any) -> Run:
    run = waiting(notify={})
    run.file("preset.yaml").write_text("notify: {command: echo x >> sent}\n")
    summary = {"outcome": outcome, "error": {"kind": kind, "message": "", "hint": ""} if kind else None}
    run.file("result.json").write_text(json.dumps(summary))
    for name, content in files.items():
        run.file(f"{name}.json").write_text(json.dumps(content))
    return run


def test_only_the_chief_sends_and_a_run_that_returns_to_the_queue_does_not() -> None:
    def sends(run: Run, **entry: Any) -> bool:
        run.queue_file.parent.mkdir(exist_ok=True)
        if entry:
            run.queue_file.write_text(json.dumps(entry))
        warnings: list[events.Event] = []
        sending.after_run(run, warnings.append)
        assert not warnings
        return run.file("sent").exists()

    workers = {"workers": ["a:1", "b:1"], "source": ""}
    assert sends(ended("ok", cluster=workers | {"index": 0}))
    assert not sends(ended("ok", cluster=workers | {"index": 1}))
    assert not sends(ended("stopped"), yields=True)
    assert sends(ended("ok"), yields=True)
    assert not sends(ended("crashed", "gpu_lost"), tries=1, most_tries=2)
    assert sends(ended("crashed", "gpu_lost"), tries=2, most_tries=2)
    assert sending.of_run(ended("timeout", "hang")).failed
    followed = ended("ok")
    best = {"option": "run.keep_best", "figure": "val_auc", "epoch": 3, "step": 9, "value": 0.875}
    followed.file("result.json").write_text(json.dumps({"outcome": "ok", "best": [best]}))
    assert "best val_auc 0.875 in epoch 3" in sending.of_run(followed).words
    assert not sending.of_run(ended("timeout", "limit")).failed


def test_a_proof_sends_its_result_or_the_reason_of_its_failure(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"notify: {{url: '{server.address('x')}', format: json}}\n")

    def carried_out(work: Callable[[], None]) -> dict[str, Any]:
        made = folder.create(request.of_change(str(file), ["steps_per_execution=2"]))
        record = folder.empty_record(made.path, made.request)
        process._make(record, work, Stop())
        process._notify(made.request, record)
        return dict(json.loads(server.received[-1][2]))

    def fails() -> None:
        raise BaselineFailed("no trial ran")

    good, bad = carried_out(lambda: None), carried_out(fails)
    assert (good["kind"], good["outcome"], good["failed"], good["error"]) == ("ab", "done", False, "")
    assert good["result"]
    assert (bad["outcome"], bad["failed"], bad["error"]) == ("failed", True, "no trial ran")


def test_the_queue_says_once_that_it_is_empty(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    settings(yaml.safe_dump({"notify": {"url": server.address("queue"), "format": "json"}}))
    trainings, made = Trainings(), [waiting(), waiting(), waiting()]
    add(*made)
    runner = trainings.runner()
    while runner.tick():
        for name in trainings.alive:
            trainings.end(name, "error" if name == made[1].id else "ok")
    empty_notice.send(runner.ended)
    empty_notice.send([])
    ((_, _, content),) = server.received
    got = json.loads(content)
    assert (got["outcome"], got["result"]) == ("failed", f"the queue is empty: 3 ended, 1 of them failed: {made[1].id}")


@pytest.mark.usefixtures("forked_trainers")
def test_rules_send_a_notice_and_pause_the_run(tmp_path: Path) -> None:
    rules = "run.watch=notify if loss < 99, warn if loss > 99, warn if energy > 1 kWh, pause if accuracy > 1%"
    sets = (
        "epochs=3000",
        "steps_per_epoch=20",
        "checkpoint=epoch",
        rules,
        f"notify.command=cat >> {tmp_path}/a; echo >> {tmp_path}/a",
    )
    done = gputui("--preset", "quickstart", *(word for each in sets for word in ("--set", each)))
    run = runs.find("latest")
    answers = [(event["rule"], event["action"]) for event in happened(run, "watch")]
    assert answers == [("notify if loss < 99", "notify"), ("pause if accuracy > 1%", "pause")], done.stdout
    assert (done.returncode, run.state, run.status["ended_by_rule"]) == (130, "stopped", "pause")
    notices = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    assert [(each["outcome"], each["failed"]) for each in notices] == [("watch", False), ("stopped", False)]
    assert notices[0]["result"].startswith("notify if loss < 99: loss is ")
    assert [item["rule"] for item in run.whole_result["watch"]] == [rule for rule, _ in answers]
    assert f"gputui resume {run.name} continues it" in done.stdout
