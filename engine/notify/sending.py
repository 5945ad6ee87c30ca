"""Sends a notice: starts the command and posts to the address at the same time, and waits at most 10 s for both.
Deferred imports: an engine that posts nothing need not load HTTP.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import IO

from ..files import typed
from ..files.values import brief, harmless
from ..options.run import SCHEMES
from ..runs import Run, events, run_cluster, titles
from ..runs.event_reading import events_of
from ..runs.events import EpochEnd
from ..runs.launched_with import options_of
from ..runs.run import STATE_LABELS, Queued
from ..system.child_process import BackgroundCall
from ..units import amount, seconds
from .targets import TargetFault, Targets, of_options

LIMIT_SECONDS = 10.0
_BLOCK_BYTES = 1 << 16
_READ_SECONDS = 1.0
_LIMIT = f"it took longer than {LIMIT_SECONDS:g} s"
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def send(targets: Targets, notice: Notice) -> list[str]:
    """A line for each failure, without address and command, which may hold secrets; after LIMIT_SECONDS at most."""
    if not targets.wants(notice.failed):
        return []
    until = time.monotonic() + LIMIT_SECONDS
    ways: dict[str, BackgroundCall[None]] = {}
    if targets.url:
        ways["notify.url"] = BackgroundCall(lambda: _post(targets, notice))
    if targets.command:
        ways["notify.command"] = BackgroundCall(lambda: _run(targets.command, notice, until))
    failures = []
    for key, call in ways.items():
        why = ""
        try:
            call.result(max(0.0, until - time.monotonic()) + 0.5)  # the command is ended at `until`
        except TimeoutError:
            why = _LIMIT
        except Exception as fault:  # noqa: BLE001 - whatever the network or the shell raises
            why = str(fault) if isinstance(fault, _NotSent) else type(fault).__name__
        if why:
            failures.append(f"the notice was not sent by {key}: {why}")
    return failures


def send_to(find: Callable[[], Targets], make: Callable[[], Notice]) -> list[str]:
    """Find the targets, and send as `send` does. Raises no exception."""
    try:
        targets = find()
        return send(targets, make()) if targets.command or targets.url else []
    except TargetFault as fault:
        return [f"no notice was sent: {fault}"]
    except Exception as fault:  # noqa: BLE001 - a notice never changes how a run ends
        return [f"no notice was sent: {type(fault).__name__}: {brief(harmless(str(fault)))}"]


def after_run(run: Run, emit: Callable[[events.Event], None]) -> None:
    """Send the notice of a run: of several machines the chief's alone, and none if it returns to the queue."""
    cluster = run_cluster.of_run(run)
    if cluster is not None and not cluster.is_chief:
        return
    if (entry := typed.read(run.queue_file, Queued).value) is not None:
        result = run.result or {}
        is_lost = (result.get("error") or {}).get("kind") == "gpu_lost"
        yields = entry.yields or run.ended_by_rule == "give_way"
        if (yields and result.get("outcome") == "stopped") or (is_lost and entry.tries < entry.most_tries):
            return
    failures = send_to(lambda: of_options(options_of(run)), lambda: of_run(run))
    for line in failures:
        emit(events.Warn(kind="notice", message=line))


def of_rule(run: Run, what: str, emit: Callable[[events.Event], None]) -> None:
    """Send the notice for which a rule of run.watch asks, also with notify.when=failure; empty: only say why not."""
    try:
        targets = of_options(options_of(run))
        why = "" if targets.when != "never" and (targets.command or targets.url) else "it has no target"
    except TargetFault as fault:
        why = str(fault)
    if why:
        hint = "set notify.url or notify.command, in the preset or in the settings"
        emit(events.Warn(kind="notice", message=f"rules of run.watch send no notice: {why}", hint=hint))
    elif what:
        notice = Notice(
            "run", RULE, id=run.id, name=run.name, title=titles.title(run), result=what, folder=str(run.path)
        )
        for line in send_to(lambda: replace(targets, when="end"), lambda: notice):
            emit(events.Warn(kind="notice", message=line))


class _NotSent(Exception):
    """The reason why a notice was not sent, without secrets."""


# ---- by HTTP --------------------------------------------------------------------------------------


def content(targets: Targets, notice: Notice) -> tuple[str, str]:
    """Return the content with its MIME type."""
    if targets.format == "text":
        return notice.words, "text/plain; charset=utf-8"
    return notice.as_json() if targets.format == "json" else json.dumps({"text": notice.words}), "application/json"


def address(url: str, environment: Mapping[str, str]) -> str:
    """Return the address with the values of its variables. Raises _NotSent."""
    missing = [name for pair in _VARIABLE.findall(url) if (name := pair[0] or pair[1]) not in environment]
    if missing:
        raise _NotSent(f"the variable {missing[0]} is not set where the run was started")
    whole = _VARIABLE.sub(lambda match: environment[match[1] or match[2]], url)
    if not whole.startswith(SCHEMES):
        raise _NotSent("the address does not begin with https:// or http://")
    return whole


def _post(targets: Targets, notice: Notice) -> None:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        """Follows no redirection: it would turn the POST into a GET, and the notice would be lost."""

        def redirect_request(self, *_arguments: object) -> None:
            return None

    url = address(targets.url, os.environ)
    data, kind = content(targets, notice)
    body = data.encode("utf-8", "replace")
    try:
        request = Request(url, data=body, headers={"Content-Type": kind, "User-Agent": "gputui"}, method="POST")
        with build_opener(NoRedirect).open(request, timeout=LIMIT_SECONDS) as answer:
            answer.read(1)
    except HTTPError as fault:
        fault.close()
        moved = "; give the address to which it leads" if 300 <= fault.code < 400 else ""
        raise _NotSent(f"the server answered {fault.code} {harmless(str(fault.reason))[:80]}{moved}") from None
    except URLError as fault:
        reason = fault.reason
        text = (reason.strerror if isinstance(reason, OSError) else "") or type(reason).__name__
        raise _NotSent(_LIMIT if isinstance(reason, TimeoutError) else harmless(str(text))) from None
    except TimeoutError:
        raise _NotSent(_LIMIT) from None
    except (HTTPException, OSError, ValueError) as fault:  # the texts of some have the address
        raise _NotSent(f"the address cannot be used ({type(fault).__name__})") from None


# ---- by a command ---------------------------------------------------------------------------------


def _run(command: str, notice: Notice, until: float) -> None:
    """The shell runs the command, which is ended with all its children at the time `until`."""
    with open(os.memfd_create("notice"), "w+b") as given:  # in memory, as a disk may be full
        given.write(notice.as_json().encode("utf-8", "replace"))
        given.seek(0)
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | notice.variables(),
            cwd=notice.folder if os.path.isdir(notice.folder) else "/",
            start_new_session=True,
        )
    assert process.stderr is not None
    last: deque[bytes] = deque(maxlen=2)
    reader = threading.Thread(target=_read, args=(process.stderr, last), name="notice", daemon=True)
    reader.start()  # a full pipe would block the command
    try:
        code = process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise _NotSent(f"{_LIMIT}, and was ended") from None
    if code:
        reader.join(_READ_SECONDS)  # a child of the command may still write
        how = f"it ended with code {code}" if code > 0 else f"signal {-code} ended it"
        lines = b"".join(last).decode("utf-8", "replace").strip().splitlines()
        raise _NotSent(": ".join((how, *[brief(harmless(line)) for line in lines[-1:]])))


def _read(errors: IO[bytes], last: deque[bytes]) -> None:
    with errors:
        last.extend(iter(lambda: os.read(errors.fileno(), _BLOCK_BYTES), b""))


FAILED = ("oom", "error", "crashed", "failed")  # outcomes that are failures
KINDS = {"ab": "comparison", "loop": "proof", "tune": "search", "rate": "learning-rate test"}  # other words for kinds
VARIABLES = "GPUTUI_NOTICE_"  # the beginning of the variables that a command gets
RULE = "watch"  # the outcome in the notice of a rule, while the run goes on
_WORDS = STATE_LABELS | {"oom": "out of memory", "timeout": "ended by a time limit", RULE: "a rule of run.watch"}
_LONGEST = 1000  # characters of a value in a variable


@dataclass(frozen=True)
class Notice:
    """`id`, `title` and `folder` are empty for the queue."""

    kind: str  # `run`, `queue`, or that of a measurement, such as `tune`
    outcome: str
    failed: bool = False
    id: str = ""
    name: str = ""
    title: str = ""
    seconds: float | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # the last values
    best_metric: str = ""
    best: float | None = None
    best_epoch: int | None = None
    result: str = ""  # of a measurement or the queue, in one sentence
    error: str = ""
    folder: str = ""
    host: str = field(default_factory=socket.gethostname)

    @property
    def subject(self) -> str:
        """The kind, its title and the outcome."""
        title = f" {self.title}" if self.title else ""
        name = f" {self.name}" if self.name not in ("", self.id) else ""
        kind = KINDS.get(self.kind, self.kind)
        return harmless(f"gputui: {kind}{name}{title}: {_WORDS.get(self.outcome, self.outcome)}")

    @property
    def words(self) -> str:
        """A few lines, the first is the subject."""
        took = f"after {seconds(self.seconds)}" if self.seconds is not None else ""
        last = ", ".join(f"{name} {amount(value)}" for name, value in self.metrics.items() if value is not None)
        best = f"best {self.best_metric} {amount(self.best)} in epoch {self.best_epoch}" if self.best_metric else ""
        where = " on ".join(filter(None, (self.id, self.host)))
        lines = (", ".join(filter(None, (took, last))), best, self.result, self.error, where)
        return "\n".join((self.subject, *(harmless(line) for line in lines if line)))

    def as_dict(self) -> dict[str, object]:
        """Return the fields with `subject` and `text`."""
        return asdict(self) | {"subject": self.subject, "text": self.words}

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def variables(self) -> dict[str, str]:
        """Texts and numbers; `failed` is 0 or 1."""
        plain = {name: value for name, value in self.as_dict().items() if not isinstance(value, Mapping)}
        texts = {name: "" if value is None else str(int(value) if isinstance(value, bool) else value)
                 for name, value in plain.items()}  # fmt: skip
        return {VARIABLES + name.upper(): value[:_LONGEST] for name, value in texts.items()}


def of_run(run: Run) -> Notice:
    result = run.whole_result
    outcome, error = result.get("outcome") or "crashed", result.get("error") or {}
    followed = next(iter(result.get("best") or ()), None)
    name, best, epoch = (followed["figure"], followed.get("value"), followed["epoch"]) if followed else _best(run)
    return Notice(
        kind="run",
        outcome=outcome,
        failed=outcome in FAILED or error.get("kind") == "hang",  # whose outcome is that of a time limit
        id=run.id,
        name=run.name,
        title=titles.title(run),
        seconds=result.get("seconds"),
        metrics=result.get("metrics") or {},
        best_metric=name,
        best=best,
        best_epoch=epoch,
        error=error.get("message") or "",
        folder=str(run.path),
    )


def _best(run: Run) -> tuple[str, float | None, int | None]:
    """The best loss of the validation, or else of the training, and its epoch; an empty name without an epoch."""
    epochs = events_of(run.path, EpochEnd)
    for name in ("val_loss", "loss"):
        values = [(value, each.epoch) for each in epochs if (value := each.metrics.get(name)) is not None]
        if values:
            value, epoch = min(values, key=lambda pair: pair[0])
            return name, value, epoch
    return "", None, None
