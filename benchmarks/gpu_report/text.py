"""The text of the report: Markdown, and nothing that names the user, the machine or their folders."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import pwd
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Names that are the same everywhere, or words of the report.
COMMON = {"root", "localhost", "user", "gpu", "host", "none", "single", "step"}
SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr")
# Two parts at least, so that "samples/s" and "/device:GPU:0" stay.
PATH = re.compile(
    rf"(?<![\w.:~/<>-])(?!/(?:{'|'.join(SYSTEM)})/)(?:/|~[\w.-]*/)[^\s/:;,|'\"`()<>=]+/[^\s:;,|'\"`()<>=]*"
)
UUID = re.compile(r"\b((?:GPU|MIG)-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def anonymous(text: str) -> str:
    """Return the text without names of users and hosts, e-mail addresses, paths outside of the system's folders, and
    UUIDs of GPUs. Each is replaced by a word such as <path>.
    """
    text = text.replace("file://", "")
    for folder in sorted(_folders(), key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}(?![\w.-])[^\s:;,|'\"`()<>]*", "<path>", text)
    text = PATH.sub("<path>", text)
    for kind, names in (("<user>", _users()), ("<host>", _hosts())):
        for name in sorted(names - COMMON - {*SYSTEM}, key=len, reverse=True):
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", kind, text, flags=re.IGNORECASE)
    text = re.sub(r"[\w.+-]+@[\w-]+\.[\w.-]+", "<mail>", text)
    return UUID.sub(r"\1...", text)


def _folders() -> set[str]:
    given = (os.environ.get(name, "") for name in ("HOME", "PWD", "GPUTUI_HOME", "VIRTUAL_ENV"))
    known = (*given, os.getcwd(), str(ROOT), str(Path.home()), sys.prefix, tempfile.gettempdir())
    both = {path for folder in known if folder for path in (folder, str(Path(folder).resolve()))}
    return {path for path in both if len(Path(path).parts) > 1 and path.split("/")[1] not in SYSTEM}


def _users() -> set[str]:
    names = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
    with contextlib.suppress(KeyError, OSError):
        names.add(getpass.getuser())
    with contextlib.suppress(KeyError):  # a container's user need not have a name
        entry = pwd.getpwuid(os.getuid())
        names |= {entry.pw_name, entry.pw_gecos.split(",")[0]}
    return {name.lower() for name in names if len(name) > 1}


def _hosts() -> set[str]:
    names = {
        socket.gethostname(),
        platform.node(),
        os.environ.get("HOSTNAME", ""),
        os.environ.get("SLURMD_NODENAME", ""),
    }
    return {part.lower() for name in names for part in (name, name.partition(".")[0]) if len(part) > 1}


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in (head, ["---"] * len(head), *rows))


def _cell(value: Any) -> str:
    return "-" if value is None else " ".join(str(value).replace("|", "/").split())


def figure(value: float | None, digits: int = 1, factor: float = 1.0) -> str:
    return "-" if value is None else f"{factor * value:.{digits}f}"


def code(text: str) -> str:
    return f"```\n{text.rstrip()}\n```"


def last_line(text: str) -> str:
    lines: Iterator[str] = (line.strip() for line in reversed(text.splitlines()))
    return next((line[:300] for line in lines if line), "")
