"""Measures the commands in the table of advice of docs/faster.md in turn, and prints the results as the page has them.

    python benchmarks/advice.py [--only WORD] [--repeats 5] [--seconds 2] [--write]

`--only` takes the rows whose advice contains the word. `--write` puts the results into the page. The photos and the
preset of the page are made in a temporary folder. It takes about a minute for each command on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "faster.md"
ROW = re.compile(r"^\| (?P<advice>[^|\n]+) \| `gputui (?P<words>ab [^|`\n]+)` \| (?P<result>[^|\n]*) \|", re.M)
YAML = re.compile(r"^```yaml\n# (?P<name>\S+)\n(?P<text>.*?)^```$", re.M | re.S)
GPUTUI = (str(Path(sys.executable).parent / "gputui"),)
PHOTOS, SIDE, CLASSES = 2000, 128, 10


def main() -> int:
    """Measure the rows that are asked for. Returns 1 if one of them could not be measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        _make_files(Path(folder))
        for row in rows(PAGE.read_text(encoding="utf-8")):
            if asked.only not in row["advice"]:
                continue
            words = [*shlex.split(row["words"]), "--repeats", str(asked.repeats), "--seconds", f"{asked.seconds:g}"]
            proof = _measure(words, folder)
            result = in_words(proof["comparisons"][0]) if proof else "failed"
            failed += not proof
            print(f"{row['advice']}: {result}", flush=True)
            if proof and asked.write:
                _write(row["words"], result)
    return int(failed > 0)


def rows(page: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows of the page's table that have a command, by the names of their cells; `words` is the command
    without `gputui`.
    """
    return (match.groupdict() for match in ROW.finditer(page))


def presets_of(page: str) -> dict[str, str]:
    """Return the texts of the page's presets by the names of their files, which their first lines give."""
    return {match["name"]: match["text"] for match in YAML.finditer(page)}


def in_words(comparison: Mapping[str, Any]) -> str:
    """Return the result of a comparison as the page has it: its decision, the median gain of the pairs and their
    spread, and the losses if the change affects what is learnt.
    """
    result = f"{comparison['decision']}: {100 * comparison['gain']:+.1f} %, spread {100 * comparison['spread']:.0f} %"
    learning = comparison["learning"] or {}
    if learning.get("loss_a") is not None and learning.get("loss_b") is not None:
        result += f"; loss {learning['loss_a']:.3g} without, {learning['loss_b']:.3g} with"
    return result


def _measure(words: list[str], folder: str) -> dict[str, Any] | None:
    """Return the proof that `gputui ab` has made in `folder`. None if it failed, after printing its messages."""
    command = [*GPUTUI, *words, "--anyway", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        print(done.stderr, file=sys.stderr)
        return None
    proof: dict[str, Any] = json.loads(done.stdout)
    return proof if proof["state"] == "done" and proof["comparisons"][0]["gain"] is not None else None


def _write(words: str, result: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(ROW.sub(_with_result(words, result), page), encoding="utf-8")


def _with_result(words: str, result: str) -> Callable[[re.Match[str]], str]:
    def replaced(row: re.Match[str]) -> str:
        return f"{row[0].removesuffix(row['result'] + ' |')}{result} |" if row["words"] == words else row[0]

    return replaced


def _make_files(folder: Path) -> None:
    """Write the page's presets, PHOTOS random photos as JPEG files in a folder for each class, and the folder `ready`
    that `gputui prepare` makes of them.
    """
    import numpy as np  # with TensorFlow it takes seconds, which a wrong argument need not wait for
    import tensorflow as tf

    for name, text in presets_of(PAGE.read_text(encoding="utf-8")).items():
        (folder / name).write_text(text)
    random = np.random.default_rng(0)
    for number in range(PHOTOS):
        coarse = random.random((SIDE // 8, SIDE // 8, 3), "float32")
        image = tf.clip_by_value(tf.image.resize(coarse, (SIDE, SIDE), "bicubic") * 255, 0, 255)
        place = folder / "photos" / str(number % CLASSES)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:04}.jpg").write_bytes(tf.io.encode_jpeg(tf.cast(image, tf.uint8), quality=90).numpy())
    subprocess.run([*GPUTUI, "prepare", "--preset", "photos.yaml", "-o", "ready"], cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
