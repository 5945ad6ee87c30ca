"""Presets changed at random, and what is wrong with the checker's answer to them.

The same seed makes the same preset. `violations` is one case of a campaign: tests take some hundred of them,
benchmarks/faults.py ten thousand.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.doors.engine import OPTIONS, presets
from tests.doors.tui import tui_cli as cli
from tests.support.broken_presets import all_broken

LONGEST = 200
_ANSWER = re.compile(r"(?P<place>.+?\.yaml)(:(?P<line>\d+))?: (?P<rest>.+)", re.DOTALL)
_KEY = re.compile(r"[\w<>.?'-]+")
_NO_KEY = re.compile(
    r"not valid YAML|the file |character #|nested deeper|aliases|a name must|must be a mapping|tags|cannot be"
)


def violations(seed: int, folder: Path) -> list[str]:
    """What is wrong with `presets check` of the preset that this seed makes, or with --set."""
    of = random.Random(seed)
    if seed % 10 == 9:
        return _of_setting(of)
    path = folder / "mutated.yaml"
    path.write_bytes(mutated(of))
    code, out, err = _ran(["presets", "check", str(path)])
    wrong = _judged(code, err)
    if code == 2:
        wrong += [what for line in err.splitlines()[:1] for what in _names_its_place(line, path)]
    elif f"{path}: good" not in out:
        wrong.append(f"neither good nor bad: {out[:200]}")
    return wrong


def mutated(of: random.Random) -> bytes:
    """A preset with something changed, from the harmless to the absurd."""
    return of.choice((_values, _values, _options, _lines, _bytes, _broken, _rubbish))(of)


def _of_setting(of: random.Random) -> list[str]:
    name = of.choice([info.key for info in OPTIONS] + [info.name for info in OPTIONS] + ["no.such", "", "a b"])
    setting = name + of.choice(("=", "=", "=", "", " = ")) + _value(of)
    code, _, err = _ran(["--preset", "quickstart", "--dry-run", "--set", setting.replace("\0", "")])
    wrong = _judged(code, err)
    if code == 2 and "--set" not in err and "quickstart" not in err and not err.startswith("Error"):
        wrong.append(f"--set is not named: {err[:200]}")
    return wrong


def _ran(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(arguments)
    return code, out.getvalue(), err.getvalue()


def _judged(code: int, err: str) -> list[str]:
    wrong = [] if code in (0, 2) else [f"exit code {code}"]
    if "please report it" in err or "Traceback" in err:
        wrong.append(err[:300])
    if code == 2 and not err.strip():
        wrong.append("refused without a word")
    wrong += [f"a line of {len(line)} characters" for line in err.splitlines() if len(line) > LONGEST]
    if odd := sorted({c for c in err if not c.isprintable() and c != "\n"}):
        wrong.append(f"control characters {odd}")
    return wrong


def _names_its_place(line: str, path: Path) -> list[str]:
    found = _ANSWER.match(line)
    if found is None or found["place"] != str(path):
        return [f"no file is named: {line}"]
    if found["line"] is None:
        return [] if "cannot be read" in line else [f"no line is named: {line}"]
    rest = found["rest"].removeprefix("error: ").removeprefix("warning: ").removeprefix("note: ")
    key, colon, _ = rest.partition(":")
    if re.search(r".: unknown (key|option)", rest):  # whatever it looks like
        return []
    if _NO_KEY.match(rest) or (colon and all(_KEY.match(part) for part in key.split(", "))):
        return []
    return [f"no key is named: {line}"]


# ---- changes ----------------------------------------------------------------------------------


def _text(of: random.Random) -> bytes:
    found = (
        presets.resolve(of.choice(sorted(presets.named_presets()))).to_yaml()
        if of.random() < 0.5
        else (of.choice(sorted(presets.SHIPPED.glob("*.yaml"))).read_text())
    )
    return found.encode()


def _values(of: random.Random) -> bytes:
    """A few options with values of any kind, as they may be typed."""
    lines = [f"description: {_value(of)}\n"] if of.random() < 0.2 else []
    groups: dict[str, list[str]] = {}
    for info in of.sample(OPTIONS, of.randint(1, 4)):
        groups.setdefault(info.group, []).append(f"  {info.name}: {_value(of)}\n")
    return "".join([*lines, *(f"{group}:\n{''.join(entries)}" for group, entries in groups.items())]).encode(
        "utf-8", "surrogatepass"
    )


def _options(of: random.Random) -> bytes:
    """Options that fit, each by itself: the rules between them are asked."""
    tree: dict[str, dict[str, Any]] = {}
    for info in of.sample(OPTIONS, of.randint(1, 20)):
        likely: list[Any] = [*info.choices, info.default, 1, 2, 7, 0.5, "off", "all", True, False, None]
        tree.setdefault(info.group, {})[info.name] = of.choice(likely)
    return yaml.safe_dump(tree).encode()


def _lines(of: random.Random) -> bytes:
    lines = _text(of).splitlines(keepends=True)
    for _ in range(of.randint(1, 4)):
        at = of.randrange(len(lines))
        what = of.randrange(5)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(at, of.choice(lines))
        elif what == 2:
            lines[at] = b" " * of.randint(1, 9) + lines[at]
        elif what == 3:
            lines[at] = lines[at].rstrip(b"\n") + _value(of).encode("utf-8", "surrogatepass") + b"\n"
        else:
            of.shuffle(lines)
        lines = lines or [b"\n"]
    return b"".join(lines)


def _bytes(of: random.Random) -> bytes:
    text = bytearray(_text(of))
    for _ in range(of.randint(1, 6)):
        at = of.randrange(len(text))
        what = of.randrange(4)
        if what == 0:
            text[at] = of.randrange(256)
        elif what == 1:
            text[at:at] = of.choice((b"\x1b[2J", b"\x00", b"\xff", b"{", b"]", b"'", b'"', b"\t", b": ", b"- ", b"&a"))
        elif what == 2:
            del text[at : at + of.randint(1, 30)]
        else:
            text[at:at] = text[at : at + 50] * of.randint(1, 20)
        text = text or bytearray(b"\n")
    return bytes(text)


def _broken(of: random.Random) -> bytes:
    """One that is known to be broken, broken once more."""
    text = bytearray(of.choice(_known())[:50_000])
    if text:
        text[of.randrange(len(text))] = of.randrange(32, 127)
    return bytes(text)


@cache
def _known() -> list[bytes]:
    return [broken.content for broken in all_broken()]


def _rubbish(of: random.Random) -> bytes:
    return (
        of.randbytes(of.randint(0, 300))
        if of.random() < 0.5
        else "".join(of.choice("{}[]:,-&*#?|>!%@`'\"\\ \n\tabc019._~=<") for _ in range(of.randint(0, 200))).encode()
    )


_VALUES: tuple[str | Callable[[random.Random], str], ...] = (
    "", "null", "~", "true", "off", "yes", "010", "-017", "1:30", "1:30:00.5", "0b101", "0x1f", "1_000", "1e3", "1e999",
    ".nan", ".inf", "-1", "0", "3.5", "'7'", "2001-01-01", "2001-01-01 10:00:00", "[]", "{}", "[1, [2, [3]]]", "{a: b}",
    "{? [a] : b}", "*a", "&a 1", "!!int x", "!!python/name:os.system", "!!binary aGk=", "!!set {a, b}", "|", ">", "@",
    "`x`", "'unclosed", '"\\e[2J\\a"', '"\\0"', '"\\uD800"', "\u202e\u200b", "é" * 20, "digits", "npz:",
    "npz:/dev/null", "npz:/dev", "images:/proc/self", "tfrecord:/dev/*", "train.py:build", "/dev/zero.py:build",
    "a.b:c", "os:system", "9" * 400, "9" * 6000, "0x" + "f" * 6000, "0b" + "1" * 6000, "1:" * 300 + "1", "a" * 3000,
    "a/" * 1500 + "b", "/" + "x" * 300, "npz:" + "x" * 5000, "'" + "w " * 900 + "'", "[" * 30 + "]" * 30,
    "[" + "1, " * 2000 + "]", "{" + ", ".join(f"a{i}: {i}" for i in range(300)) + "}",
    lambda of: str(of.randint(-(10**of.randint(1, 30)), 10 ** of.randint(1, 30))),
    lambda of: repr(of.uniform(-1, 1) * 10 ** of.randint(-300, 300)),
    lambda of: "".join(chr(of.choice((of.randrange(32, 127), of.randrange(160, 767)))) for _ in range(40)),
    lambda of: str(of.choice([choice for info in OPTIONS for choice in info.choices])),
)  # fmt: skip


def _value(of: random.Random) -> str:
    value = of.choice(_VALUES)
    return value if isinstance(value, str) else value(of)
