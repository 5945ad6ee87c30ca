"""Other ways to a copied text, as no terminal confirms a text that it gets by OSC 52: a file, and tmux' buffer."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ...engine.files import places, private_folders
from ...engine.files.writing import write_atomically

TMUX_SECONDS = 2.0


def file() -> Path:
    """The path of the file with the text that was copied last."""
    return places.home() / "copied.txt"


def keep(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Keep the text in tmux or in a file; returns a sentence that names the place. Waits for the disk.

    tmux passes OSC 52 on only if its `set-clipboard` is on, but takes the text for its own buffer.
    """
    if environment.get("TMUX") and _to_tmux(text):
        return "tmux has it as well: its prefix, then ] pastes it"
    kept = file()
    try:
        private_folders.make(kept.parent, exist_ok=True)
        write_atomically(kept, text, durable=False)
    except OSError as fault:
        return f"if the terminal does not take it (OSC 52), there is no other way: {kept}: {fault.strerror}"
    return f"if the terminal does not take it (OSC 52), it is in {kept}"


def _to_tmux(text: str) -> bool:
    command = ["tmux", "load-buffer", "-w", "-"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        ended = subprocess.run(command, input=text.encode(), capture_output=True, timeout=TMUX_SECONDS, check=False)
        return ended.returncode == 0
    return False
