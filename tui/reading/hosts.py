"""Other machines, each read through one plain `ssh` that runs `gputui hosts --here` there. It prints a line for each
change, and ends by itself when the connection is gone. The user's own configuration of ssh says how to connect."""

from __future__ import annotations

import io
import os
import shlex
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...engine.entry import parse as parse_entry
from ...engine.files import located_yaml
from ...engine.files.places import config_folder
from ...engine.files.reading import parse_object
from ...engine.files.values import brief, harmless
from ...engine.presets import Preset
from ...engine.runs import ACTIVE_STATES, Run, code_copy
from ...engine.units import clock, counted, gibibytes, share

TICK_SECONDS = 0.2  # between two looks at the connections
BEAT_SECONDS = 2.0  # both sides write at least so often
GIVE_UP_SECONDS = 15.0  # without a line, until a connection is given up, on both sides
CONNECT_SECONDS, RETRY_SECONDS = 10, 5.0  # for a connection, and between two
UNASKED = ("-T", "-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}")  # for ssh
SEND_SECONDS, STAMP = 120.0, "%Y%m%d-%H%M%S"
REMARKS = 20  # lines of ssh that are kept
BLOCK = 65536
OWN_PLACE = 'PATH="$PATH:$HOME/.local/bin"; '  # of pipx and uv; ssh runs a command without the profile of a login
WRONG, NO_PROGRAM, OF_SSH = 2, (126, 127), 255  # exit codes
NO_NAMES = """name the hosts, as ssh knows them: gputui hosts gpu1 me@gpu2
or write their names into {}, such as `gpu1:` on a line of its own"""
# By words that ssh writes: the reason, and what to do about it.
REASONS = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "its host key has changed; ssh {} says what to do",
    "Host key verification failed": "its host key is not known here; connect once by hand: ssh {}",
    "Permission denied": "permission denied: a key without a password or an agent is needed (ssh-copy-id {0}, ssh-add)",
    "Could not resolve hostname": "unknown host: ssh and its configuration do not know {}",
}


@dataclass(frozen=True)
class Host:
    """`name` is what ssh connects to, `program` the command of gputui there."""

    name: str
    program: str = "gputui"

    def command(self, words: str, *options: str, before: str = "") -> list[str]:
        """Return the command that runs gputui with `words` on this host, after `before`; both are text of a shell."""
        remote = f"sh -c {shlex.quote(f'{OWN_PLACE}{before}exec {self.program} {words}')}"
        return ["ssh", *options, "--", self.name, remote]


def configured(names: Sequence[str] = ()) -> list[Host]:
    """Return the named hosts, else those of hosts.yaml, which may name the command there. Raises ValueError."""
    path = config_folder() / "hosts.yaml"
    try:
        programs = (
            {name: each.value for name, each in located_yaml.read_settings(path).items()} if path.exists() else {}
        )
    except (OSError, located_yaml.YamlFault) as fault:
        raise ValueError(f"{path} cannot be read: {fault}") from None
    if wrong := [name for name, program in programs.items() if program is not None and not isinstance(program, str)]:
        raise ValueError(f"{path}: {wrong[0]} takes the command of gputui there, or nothing")
    hosts = [Host(name, programs.get(name) or Host.program) for name in dict.fromkeys(names or programs)]
    if not hosts:
        raise ValueError(NO_NAMES.format(path))
    return hosts


@dataclass(frozen=True)
class HostRow:
    """A row about a host, or about a GPU, a run or a waiting job there."""

    host: Host
    name: str
    state: str
    busy: str = ""
    memory: str = ""
    run: str = ""
    look: str = "value"  # a style of painted rows


# ---- its connection -------------------------------------------------------------------------------


class Link:
    """The connection to a host, which is made again whenever it ends. `rows` are those of the host by keys that stay,
    `content` is all that it says. Without an answer `fault` says why, and `since` (Unix seconds) since when."""

    def __init__(self, host: Host) -> None:
        self.host, self.fault, self.since = host, "", 0.0
        self.rows: Mapping[str, HostRow] = {host.name: HostRow(host, host.name, "connecting ...")}
        self.content: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._stream = socket.socket()  # all standard streams of ssh
        self._rest, self._remarks = b"", [""]
        self._heard = self._due = self._beat_due = 0.0  # of the steady clock

    def look(self) -> bool:
        """Take what the host has written, or connect if that is due; True if rows have changed. Never waits."""
        before, moment = self.rows, time.monotonic()
        if self._process is None:
            if moment >= self._due:
                self._connect(moment)
            return self.rows is not before
        code = self._process.poll()
        if moment >= self._beat_due:
            self._beat_due = moment + BEAT_SECONDS
            with suppress(BlockingIOError, ConnectionError):
                self._stream.send(b"\n")
        try:
            while block := self._stream.recv(BLOCK):
                *lines, self._rest = (self._rest + block).split(b"\n")
                self._take(lines, moment)
        except (BlockingIOError, ConnectionError):
            pass
        except (LookupError, TypeError, ValueError, AttributeError):
            self._fail(f"gputui {self.content.get('version', '')} there says what this one does not read")
            return True
        if code is not None:
            self._fail(self._reason(code))
        elif moment - self._heard > GIVE_UP_SECONDS:
            self._fail("it has stopped answering")
        return self.rows is not before

    def _connect(self, moment: float) -> None:
        self.content, self._rest, self._remarks, self._heard, self._beat_due = {}, b"", [""], moment, moment
        self._stream, theirs = socket.socketpair()
        self._stream.setblocking(False)
        try:
            # In a session of its own it has no terminal to ask for a password.
            self._process = subprocess.Popen(
                self.host.command("hosts --here", *UNASKED), stdin=theirs.fileno(), stdout=theirs.fileno(),
                stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | {"SSH_ASKPASS_REQUIRE": "never"},
            )  # fmt: skip
        except OSError as fault:
            self._fail(f"ssh cannot be started: {fault.strerror}")
        finally:
            theirs.close()

    def _take(self, lines: Iterable[bytes], moment: float) -> None:
        content: dict[str, Any] = {}
        for line in lines:
            if (changes := parse_object(line)) is not None:
                self._heard, content = moment, content | changes
            elif remark := line.decode(errors="replace").strip():  # of ssh, or of a profile of the shell there
                self._remarks = [*self._remarks, harmless(remark)][-REMARKS:]
        if content:
            self.content |= content
            self.rows, self.fault, self.since = _rows(self.host, self.content), "", 0.0

    def _fail(self, fault: str) -> None:
        self.close()
        self._due = time.monotonic() + RETRY_SECONDS
        silent_seconds = time.monotonic() - self._heard
        self.content, self.fault, self.since = {}, fault, self.since or time.time() - silent_seconds
        state = f"no answer since {time.strftime('%H:%M:%S', time.localtime(self.since))}: {fault}"
        self.rows = {self.host.name: HostRow(self.host, self.host.name, state, look="warn")}

    def _reason(self, code: int) -> str:
        text = "\n".join(self._remarks)
        if code in NO_PROGRAM:
            return f"{self.host.program} is not installed there, or ssh does not find it: hosts.yaml may name it"
        if code == WRONG and "'hosts'" in text:
            return "its gputui is older and has no `hosts`; install this version there"
        reasons = (reason for words, reason in REASONS.items() if code == OF_SSH and words in text)
        last = brief(self._remarks[-1], 200) or "the connection has ended"
        return next((reason.format(self.host.name) for reason in reasons), last)

    def close(self) -> None:
        """End the connection. The other side ends as its input ends."""
        self._stream.close()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def _rows(host: Host, content: Mapping[str, Any]) -> dict[str, HostRow]:
    """Return the rows of a host that answers. `content` has the objects of `gputui gpus --json`, `runs --json`
    and `queue --json`. Raises LookupError, TypeError, ValueError or AttributeError if it is of another form."""
    gpus, runs, queue = content["gpus"], content["runs"], content["queue"]
    free = f"{sum(gpu['free'] for gpu in gpus)} of {counted(len(gpus), 'GPUs')} free" if gpus else "no GPUs"
    running = sum(run["state"] in ACTIVE_STATES for run in runs)
    words = (free, counted(running, "runs") if running else "nothing runs", content["no_gpus"])
    state = ", ".join(filter(None, (*words[:2], f"{len(queue)} in the queue" if queue else "", words[2])))
    rows = {host.name: HostRow(host, host.name, state, *_figures(gpus), look="title")}
    for gpu in gpus:
        number = str(gpu["index"]) if gpu["instance"] is None else f"{gpu['index']}:{gpu['instance']}"
        name = f"  GPU {number} {gpu['name'].removeprefix('NVIDIA ')}"
        rows[f"{host.name} {number}"] = HostRow(host, name, gpu["why_not_free"] or "free", *_figures([gpu]))
    for run in runs:
        latest = run["progress"] or {}
        done = f", {share(latest['step'] / latest['steps'])}" if latest.get("steps") else ""
        left = f", {clock(latest['eta_seconds'])} left" if latest.get("eta_seconds") is not None else ""
        name, state = f"  {run['name']} {run['title']}", f"{run['state']}{done}{left}"
        rows[f"{host.name} {run['id']}"] = HostRow(host, name, state, run=run["name"])
    for job in queue:
        when = job["when"].removeprefix("unknown")
        state = "; ".join(filter(None, (f"waits {when}".rstrip(), job["why"] or f"needs {job['needs']}")))
        rows[f"{host.name} {job['run']}"] = HostRow(host, f"  {job['name']}", state, run=job["name"])
    return rows


def _figures(gpus: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return how busy the GPUs are, as a mean, and their memory in GiB, used and in all."""
    busy = [gpu["busy"] for gpu in gpus if gpu["busy"] is not None]
    used, total = (sum(gpu[f"memory_{name}_bytes"] or 0 for gpu in gpus) for name in ("used", "total"))
    memory = f"{gibibytes(used)} / {gibibytes(total)}" if total else ""
    return share(sum(busy) / len(busy)) if busy else "", memory


# ---- a preset for one of them ---------------------------------------------------------------------


def first_to_start(links: Sequence[Link], preset: Preset) -> Link:
    """Return the connection to the host that has the GPUs of the preset free and nothing waiting, else that on which
    least waits and runs. Raises ValueError if none answers."""
    choice = preset.options.device.choice

    def later(link: Link) -> tuple[bool, int, int]:
        gpus, runs, waiting = link.content["gpus"], link.content["runs"], len(link.content["queue"])
        of_kind = [gpu for gpu in gpus if choice is None or choice.allows(gpu["name"], gpu["memory_total_bytes"])]
        free = sum(gpu["free"] for gpu in of_kind)
        going_on = sum(run["state"] in ACTIVE_STATES for run in runs)
        return bool(waiting) or free < (choice.count if choice else 1), waiting + going_on, -free

    if (first := min((link for link in links if link.content), key=later, default=None)) is None:
        raise ValueError("\n".join(f"{link.host.name}: {link.fault or 'no answer'}" for link in links))
    return first


def send(preset: Preset, host: Host) -> str:
    """Copy the preset and the Python files next to its code to ~/gputui-sent on the host, and queue it there. Returns
    what gputui says there. Raises ValueError with its reasons if it refuses."""
    options = preset.options
    with tempfile.TemporaryDirectory() as folder, io.BytesIO() as archive:
        staged = Run(Path(folder))
        if (entry := options.workload.entry) is not None:
            code_copy.make(staged, options.with_values({"run.code": "live"}))  # without links to what stays here
            if (copy := code_copy.of(staged)) is None:
                raise ValueError(code_copy.read(staged).left_out or f"{entry} names a module, which is not sent")
            there = str(code_copy.used_entry(parse_entry(entry), Path(copy.name)))
            options = options.with_values({"workload.entry": there, "workload.folder": None})
        staged.file("preset.yaml").write_text(replace(preset, options=options).changed_as_yaml(), encoding="utf-8")
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            tar.add(folder, ".")
        sent = f'"$HOME"/gputui-sent/{shlex.quote(f"{time.strftime(STAMP)}-{preset.name}")}'
        before = f"mkdir -p {sent} && cd {sent} && tar xzf - && "
        command = host.command("--preset ./preset.yaml --queue", *UNASKED, before=before)
        try:
            done = subprocess.run(
                command, input=archive.getvalue(), capture_output=True, timeout=SEND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"{host.name} has not answered for {SEND_SECONDS:.0f} s") from None
    answer = harmless((done.stdout + done.stderr).decode(errors="replace").strip())
    if done.returncode:
        raise ValueError(answer or f"ssh {host.name} has ended with {done.returncode}")
    return answer
