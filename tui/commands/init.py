"""`gputui init`: writes files to start from, and says what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path

from ...engine.presets import start_files
from ..base.errors import Refused


def begin(folder: str, example: str | None = None) -> None:
    """Write the files and say what to do with them; refuses to overwrite."""
    try:
        written = start_files.write(Path(folder), example)
    except FileExistsError as fault:
        raise Refused(f"{fault} exists, and is not overwritten; name another folder: gputui init DIR") from None
    for path in written:
        print(f"wrote {path}")
    go = f"cd {shlex.quote(folder)}\n    " if folder != "." else ""
    preset, program = (path.name for path in written)
    print(
        f"\nnext:\n    {go}{f'gputui --preset {preset}':<33}train it as it is\n"
        f"    {f'gputui {preset}':<33}open the form on it, to change options\n"
        f"then put your own model and data into {program}: gputui guide says what build may return,\n"
        "and gputui options lists what a preset can set"
    )
