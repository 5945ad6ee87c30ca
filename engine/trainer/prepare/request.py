"""What a process of `gputui prepare` is started with: one line of JSON from engine/prepare/preparing.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ...options import Options, options_json


@dataclass(frozen=True)
class Request:
    """The preset's options, the folder to write to, and the settings of the command. None: not given."""

    options: Options
    folder: Path
    format: str
    dtype: str | None
    size: tuple[int, int] | None
    limit: int | None


def read(line: str) -> Request:
    """Return the request in a line of JSON that gputui itself has written."""
    given = json.loads(line)
    size = given["size"]
    return Request(
        options_json.from_json(json.dumps(given["options"])),
        Path(given["folder"]),
        given["format"],
        given["dtype"],
        (size[0], size[1]) if size else None,
        given["limit"],
    )
