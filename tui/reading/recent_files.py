"""The preset files that were opened or saved last, kept in gputui's home.

The file is small, written by a thread of its own, and no reason to fail: one that is damaged counts as empty.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...engine.files import places
from ...engine.files.reading import read_bytes
from ...engine.files.writing import write_atomically

MOST = 20
ANSWER_SECONDS = 0.3
OPENING_SECONDS = 1.0  # for a preset with its bases; a busy machine may need some of it
MAX_BYTES = 200_000
MAX_PATH = 4096  # of Linux; a longer one is no path
_writing = threading.Lock()
T = TypeVar("T")


def file() -> Path:
    return places.home() / "recent.json"


def recent() -> list[Path]:
    """The files, the latest first. Does not check whether they exist, as their disk may not answer."""
    try:
        stored = json.loads(read_bytes(file(), MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return []
    texts = stored if isinstance(stored, list) else []
    kept = (text for text in texts if isinstance(text, str) and len(text) <= MAX_PATH and text.isprintable())
    return [Path(text) for text in dict.fromkeys(kept) if text.startswith("/")][:MOST]


def is_there(path: Path) -> bool:
    """Whether the path is a file; False too if its disk does not answer in time."""
    return bool(answer(path.is_file, ANSWER_SECONDS))


def answer(ask: Callable[[], T], seconds: float) -> T | None:
    """The result of `ask`, called in a thread; None if it fails or takes more than `seconds`."""
    answers: list[T] = []

    def put() -> None:
        with contextlib.suppress(Exception):  # whatever it is, there is no answer; a thread would print a traceback
            answers.append(ask())

    asking = threading.Thread(target=put, daemon=True)
    asking.start()
    asking.join(seconds)
    return answers[0] if answers else None


def note(path: Path) -> threading.Thread:
    """Put a file at the first place of the list, in the returned thread; nothing happens if gputui's home cannot be
    written.
    """
    thread = threading.Thread(target=_note, args=(path,), daemon=True)
    thread.start()
    return thread


def _note(path: Path) -> None:
    with contextlib.suppress(OSError), _writing:
        whole = [str(file_path) for file_path in (path.absolute(), *recent())]
        file().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file(), json.dumps(list(dict.fromkeys(whole))[:MOST], indent=1) + "\n", durable=False)
