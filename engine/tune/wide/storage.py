"""The storage of a study: a journal file, also on a shared folder, or a database. The file's lock is another file,
created exclusively, which works on NFS from version 3 on (open(2), O_EXCL); Optuna takes over that of a member that
died within 30 seconds.
Deferred imports: Optuna is an optional extra, and takes a second.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from ...proof.request import ProofError

SQLITE = "sqlite:///"
TRIES = 5  # to open a database that other members are creating at the same moment
_RECORD_START = b'{"op_code":'


class StudyError(ProofError):
    """A study cannot be used. The text says why, and what to do."""


def is_installed() -> bool:
    return importlib.util.find_spec("optuna") is not None


def require(what: str) -> None:
    """Raise ProofError without Optuna; `what` needs it, such as "wide searches need"."""
    if not is_installed():
        raise ProofError(f"{what} Optuna, which is not installed; pip install 'optuna>=5,<6' adds it")


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def located(given: str) -> str:
    """Return the file or URL of a study as any folder can use it: an absolute path or a full URL."""
    if "://" not in given:
        return str(Path(os.path.expanduser(given)).absolute())
    if given.startswith(SQLITE) and not given.startswith(f"{SQLITE}/"):
        return SQLITE + str(Path(given.removeprefix(SQLITE)).absolute())
    return given


def shown(location: str) -> str:
    """Return the location of a study without the password that its URL may have."""
    scheme, mark, rest = location.partition("://")
    user, at, host = rest.rpartition("@")
    return location if not at else f"{scheme}{mark}{user.partition(':')[0]}@{host}" if mark else location


def exists(location: str) -> bool:
    """Return True if a study may exist: for each URL and each file. Raises StudyError if none can be created."""
    path = Path(location)
    if "://" in location or path.is_file():
        return True
    if path.exists():
        raise StudyError(f"{location} is not a file; give --study a file or the URL of a database")
    if not path.parent.is_dir():
        raise StudyError(f"there is no folder {path.parent} for the study; make it first")
    return False


def opened(location: str) -> Any:
    """Optuna's storage at this location; a file is created if there is none. Raises StudyError."""
    import optuna
    from optuna.storages import RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with faults_of(location):
        if "://" in location:
            return RDBStorage(location)
        lock = JournalFileOpenLock(location)
        _check(Path(location), lock)
        return JournalStorage(JournalFileBackend(location, lock))


def study(location: str, name: str, direction: str) -> Any:
    """Optuna's study, created if there is none. Raises StudyError."""
    import optuna

    for attempt in range(TRIES):
        try:
            with faults_of(location):
                return optuna.create_study(
                    storage=opened(location), study_name=name, direction=direction, load_if_exists=True
                )
        except StudyError:
            if attempt == TRIES - 1:
                raise
            time.sleep(random.random())
    return None


def _check(path: Path, lock: Any) -> None:
    """Raise ValueError for a file that is no journal, and remove an incomplete last line: Optuna would write to the end
    of a file that it has not read, and on that line.
    """
    content = path.read_bytes() if path.is_file() else b""
    complete, last, torn = content.rpartition(b"\n")
    lines = complete.splitlines() if last else []
    for line in lines[:1] + lines[-1:]:
        record = json.loads(line)
        if not isinstance(record, dict) or not isinstance(record.get("op_code"), int):
            raise ValueError(path)
    if torn and not lines and not torn.startswith(_RECORD_START):
        raise ValueError(path)
    if not torn:
        return
    lock.acquire()
    try:
        content = path.read_bytes()
        if not content.endswith(b"\n"):  # another member may have completed the line
            os.truncate(path, content.rfind(b"\n") + 1)
    finally:
        lock.release()


@contextmanager
def faults_of(location: str) -> Iterator[None]:
    try:
        yield
    except StudyError:
        raise
    except Exception as fault:
        raise StudyError(f"the study in {shown(location)} cannot be used: {_why(fault, location)}") from fault


def _why(fault: Exception, location: str) -> str:
    cause: BaseException = fault
    while cause.__cause__ is not None:  # Optuna wraps the error of a database
        cause = cause.__cause__
    if isinstance(cause, OSError):
        return f"{cause.strerror or cause}; every member must be allowed to write to it and to its folder"
    if isinstance(cause, ImportError):
        return f"{_line(cause)}; install the database's driver, or give --study a file"
    if "://" not in location and isinstance(cause, (ValueError, LookupError, TypeError, AssertionError)):
        return "it is not a journal of Optuna, or it is damaged; give --study another file"
    if "readonly database" in str(cause):
        path = location.removeprefix(SQLITE)
        return f"it cannot be written, as SQLite makes its file for one user alone; its owner can chmod g+w {path}"
    return _line(cause)


def _line(fault: BaseException) -> str:
    lines = str(fault).splitlines()
    return lines[0] if lines else type(fault).__name__
