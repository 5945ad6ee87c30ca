"""What other programs get from gputui: Slurm's, another interpreter, and the server of a notice."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.files import places
from gputui.engine.follow import to_prometheus
from gputui.engine.follow.points import Point
from gputui.engine.follow.target import AboutRun, without_login
from gputui.engine.interpreter import interpreter
from gputui.engine.job import environment_variables, slurm_programs
from gputui.engine.notify import sending, targets
from gputui.engine.notify.notice import Notice
from gputui.engine.notify.targets import Targets, of_options
from gputui.engine.runs import RunError
from gputui.engine.system.child_process import OWN_PYTHON

SAYS = """#!/bin/sh
for each in "$0" "$@"; do echo "$each"; done > "{file}"
env | grep -E '^(SQUEUE|SACCT|SLURM)_' | sort >> "{file}"
"""


def stand_in(folder: Path, name: str) -> Path:
    """Put a program in the folder that writes its arguments and Slurm's variables to a file, which is returned."""
    program, file = folder / name, folder / f"{name}.txt"
    program.write_text(SAYS.format(file=file))
    program.chmod(0o755)
    return file


def test_squeue_and_sacct_are_asked_in_a_form_that_no_variable_of_the_user_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [stand_in(tmp_path, name) for name in ("squeue", "sacct", "sbatch")]
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name in [name for name in os.environ if name.startswith(("SQUEUE_", "SACCT_", "SLURM_"))]:
        monkeypatch.delenv(name)
    for name in ("SQUEUE_FORMAT", "SQUEUE_USERS", "SACCT_FORMAT", "SLURM_TIME_FORMAT", "SLURM_CONF"):
        monkeypatch.setenv(name, "mine")
    assert slurm_programs.jobs(["7", "8"]) == dict.fromkeys(["7", "8"], slurm_programs.SlurmJob("GONE"))
    with pytest.raises(RunError, match="sbatch does not print the number of a job, but ''"):
        slurm_programs.submit(["--hold"], {"PATH": os.environ["PATH"], "SLURM_TIME_FORMAT": "relative"})
    assert [file.read_text().split("\n")[1:-1] for file in files] == [
        ["--noheader", "--states=all", f"--user={os.geteuid()}", "--format=%i|%T|%r|%S|%N", "SLURM_CONF=mine"],
        ["--noheader", "--parsable2", "--allocations", "--jobs=7,8", "--format=JobIDRaw,State", "SLURM_CONF=mine"],
        ["--parsable", "--hold", "SLURM_TIME_FORMAT=relative"],
    ]


def test_another_interpreter_knows_the_one_of_gputui_and_gputuis_own_does_not_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {key: value for key, value in os.environ.items() if key not in (OWN_PYTHON, "PATH")}
    monkeypatch.setenv("PATH", "/usr/bin")
    for inherited in (None, "/of/an/earlier/process"):
        if inherited:
            monkeypatch.setenv(OWN_PYTHON, inherited)
        assert interpreter.environment(sys.executable) == before | {"PATH": "/usr/bin"}
        other = before | {"PATH": "/env/bin:/usr/bin", OWN_PYTHON: sys.executable}
        assert interpreter.environment("/env/bin/python") == other
    assert interpreter.command(sys.executable, "gputui.engine", "a") == [
        sys.executable, "-P", "-m", "gputui.engine", "a"
    ]  # fmt: skip


def test_a_server_gets_the_notice_in_the_form_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[Any, ...]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            kept = {name: value for name, value in self.headers.items() if name not in ("Host", "Connection")}
            received.append((self.path, kept, content))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_given: Any) -> None:
            pass

    notice = Notice("run", "ok", title="é: xla", seconds=75.0, host="box")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        monkeypatch.setenv("NAME", "t0")
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        for form, path in (("text", "$NAME"), ("json", "${NAME}"), ("slack", "x$NAME/y")):
            assert sending.send(Targets("", url + path, form, "end"), notice) == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    words = "gputui: run é: xla: done\nafter 1:15\nbox"
    bodies = [
        ("/t0", "text/plain; charset=utf-8", words.encode()),
        ("/t0", "application/json", notice.as_json().encode()),
        ("/xt0/y", "application/json", json.dumps({"text": words}).encode()),
    ]
    assert notice.words == words
    assert received == [
        (path, {"Accept-Encoding": "identity", "Content-Type": kind, "User-Agent": "gputui",
                "Content-Length": str(len(body))}, body) for path, kind, body in bodies
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "options", "expected", "ends", "failures"),
    [
        ("", {}, Targets("", "", "text", "end"), False, False),
        ("command: mail\n  when: failure", {}, Targets("mail", "", "text", "failure"), False, True),
        ("command: mail", {"when": "never"}, Targets("", "", "text", "never"), False, False),
        ("command: mail\n  url: https://a", {"command": ""}, Targets("", "https://a", "text", "end"), True, True),
        ("url: https://a\n  format: json", {"url": "https://b", "when": "failure"},
         Targets("", "https://b", "json", "failure"), False, True),
        ("when: never\n  command: mail", {}, Targets("mail", "", "text", "never"), False, False),
        ("when: never\n  command: mail", {"when": "end"}, Targets("mail", "", "text", "end"), True, True),
        ("format:\n  url: ''", {"command": "x"}, Targets("x", "", "text", "end"), True, True),
    ],
)  # fmt: skip
def test_the_preset_decides_before_the_settings(
    settings: str, options: dict[str, Any], expected: Targets, ends: bool, failures: bool
) -> None:
    if settings:
        places.settings_file().parent.mkdir(parents=True, exist_ok=True)
        places.settings_file().write_text(f"notify:\n  {settings}\n")
    found = of_options({f"notify.{name}": value for name, value in options.items()})
    assert (found, found.wants(False), found.wants(True)) == (expected, ends, failures)


def test_a_wrong_setting_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    for text, message in (
        ("notify:\n  command: a\n  when: 3\n", f"{file}:3: notify.when must be one of end, failure, never"),
        ("notify:\n  url: [a]\n", f"{file}:2: notify.url must be a text"),
        ("notify:\n  format: xml\n", f"{file}:2: notify.format must be one of text, slack, json"),
    ):
        file.write_text(text)
        with pytest.raises(targets.TargetFault) as fault:
            targets.of_settings(file)
        assert str(fault.value) == message
    file.write_text("other: 1\n")
    assert targets.of_settings(file) == {}
    file.write_text("notify: 1\n")
    assert targets.of_settings(file) == {}


@pytest.mark.parametrize(
    ("address", "shown", "recorded"),
    [
        ("http://me:word@host:80/a", "http://host:80/a", "http://...@host:80/a"),
        ("http://me:w@rd@host/a?to=b@c", "http://host/a?to=b@c", "http://...@host/a?to=b@c"),
        ("see http://token@host, or http://host/x@y", "see http://host, or http://host/x@y",
         "see http://...@host, or http://host/x@y"),
        ("http://host?to=b@c", "http://host?to=b@c", "http://host?to=b@c"),
        ("http://host#b@c me@host", "http://host#b@c me@host", "http://host#b@c me@host"),
    ],
)  # fmt: skip
def test_no_part_of_a_password_in_an_address_is_shown_or_recorded(address: str, shown: str, recorded: str) -> None:
    assert without_login(address) == shown
    given = {"NCCL_A": address, "TF_TOKEN_x": "a", "NVIDIA_PASSWORD": "a", "HOME": "/", "CUDA_B": "x" * 201}
    assert environment_variables.recorded(given) == {"CUDA_B": "x" * 200 + "...", "NCCL_A": recorded}


@pytest.mark.parametrize("umask", [0o077, 0o022, 0])
def test_node_exporter_can_read_the_file_of_figures_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    monkeypatch.setenv(to_prometheus.VARIABLE, str(tmp_path))
    target = to_prometheus.Prometheus({})
    before = os.umask(umask)
    try:
        target.open(AboutRun(tmp_path, "one", "one", "one", {}, (), ""), "0123456789")
        modes = []
        for number in range(2):
            target.write([Point(number, 1.0, number, {"loss": 0.5})])
            modes.append(os.stat(target.where).st_mode & 0o777)
    finally:
        os.umask(before)
    assert target.where == str(tmp_path / "gputui-one-012345.prom")
    assert modes == [0o644, 0o644]
    assert [path.name for path in tmp_path.iterdir()] == ["gputui-one-012345.prom"]
