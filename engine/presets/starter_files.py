"""The files that `gputui init` writes, as a start for a user's own code."""

from __future__ import annotations

from pathlib import Path

from ..files.places import SHIPPED_EXAMPLES

STARTER, PRESET, PROGRAM = SHIPPED_EXAMPLES / "starter", "preset.yaml", "train.py"


def write(folder: Path, example: str | None = None) -> list[Path]:
    """A preset and a program, or the shipped `example` with further presets. A train.py that exists is left as it is.
    FileExistsError if another file exists: then nothing is written. Raises other OSErrors.
    """
    shipped, names = STARTER, [PRESET] if (folder / PROGRAM).is_file() else [PRESET, PROGRAM]
    if example is not None:
        later = sorted(path.name for path in SHIPPED_EXAMPLES.glob(f"{example}-*.yaml"))
        shipped, names = SHIPPED_EXAMPLES, [f"{example}.yaml", f"{example.replace('-', '_')}.py", *later]
    texts = {folder / name: (shipped / name).read_text(encoding="utf-8") for name in names}
    for path in texts:
        if path.exists() or path.is_symlink():
            raise FileExistsError(path)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    return list(texts)
