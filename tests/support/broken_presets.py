"""Presets with one thing wrong in each, and where: what a person may type, and what nobody would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.doors.engine import GROUPS, OPTIONS, OptionInfo

HEAD = "# a comment\ndescription: broken\n"


@dataclass(frozen=True)
class Broken:
    """A file's content, and the line and key that its error must name (no key where none can be told)."""

    name: str
    content: bytes
    line: int
    key: str = ""


def all_broken() -> list[Broken]:
    return [*_wrong_values(), *_wrong_names(), *_wrong_groups(), *_wrong_heads(), *_wrong_yaml(), *_no_text()]


def _one(name: str, text: str, line: int, key: str = "") -> Broken:
    return Broken(name, (HEAD + text).encode(), line + 2, key)


def _option(info: OptionInfo, name: str, value: str) -> Broken:
    text = f"{info.group}:\n  {info.name}: {value}\n"
    return _one(f"{info.key}-{name}", text, 2, info.key)


def _wrong_values() -> Iterator[Broken]:
    """Each option with values that no option takes, then with what its type or range excludes."""
    for info in OPTIONS:
        if not isinstance(info.default, dict):
            yield _option(info, "map", "{a: 1, b: 2}")
        yield _option(info, "nested-list", "[[1], [2]]")
        yield _option(info, "date", "2001-01-01")
        if info.is_bool:
            yield _option(info, "word", "maybe")
            yield _option(info, "number", "1")
        if info.is_number:
            yield _option(info, "negative", "-1")
            yield _option(info, "huge", "1" + "0" * 400)
            yield _option(info, "nan", ".nan")
            yield _option(info, "infinite", ".inf")
            yield _option(info, "quoted", "'3.5'")
        if info.choices:
            yield _option(info, "word", "nonsense!")
    for key, values in _SPECIAL.items():
        info = next(info for info in OPTIONS if info.key == key)
        for number, value in enumerate(values):
            yield _option(info, f"special{number}", value)


_SPECIAL = {
    "workload.data": (
        '""',
        "npz",
        '"npz:"',
        "ftp:x",
        "Digits",
        "{npz: [1]}",
        "{npz: null}",
        "{a: 1}",
        "[digits]",
        '"npz:a\\0b"',
    ),
    "workload.shape": ("[]", "[0]", "[-1, 2]", "[1, 2, 3, 4]", "[8.5]", "[true]", "[99999999]", "8"),
    "workload.width": ("0", "0.0001", "1e300", "1e999", "wide"),
    "workload.entry": (
        '""',
        "train.py",
        "build",
        '":build"',
        '"train.py:"',
        "train.py:b-c",
        '"a.b:"',
        "a..b:c",
        "3",
        "[a]",
    ),
    "workload.args": ("3", "text", "[1]", "{1: 2}", "{a: 2001-01-01}", "{a: .nan}", "{a: {b: !!binary aGVsbG8=}}"),
    "workload.classes": ("1", "0x7fffffffffff", "10.0", "1:30:00:00:00"),
    "input.batch_size": (
        "0",
        "1.5",
        "1e3",
        "'64'",
        "sixty",
        "null",
        "true",
        "off",
        "1_000_000_000_000",
        "9" * 5000,
        "!!int many",
        "!!timestamp soon",
        "!!binary aGVsbG8=",
        "!!float x",
        "!!bool maybe",
        "!!set {a}",
        "!!python/name:os.system",
        "!!python/object/apply:os.system ['false']",
        "!unknown 3",
        "=",
    ),
    "input.cache": ('""', "on", "[memory]", '"a\\0b"', "7"),
    "input.prefetch": ("0", "-3", "2.5", "on", "null"),
    "train.learning_rate": ("0", "fast", "1e-", "1e4", "0.1 0.2", "[0.1]"),
    "train.validation_split": ("1", "0.95", "-0.1", "10%"),
    "run.profile": ("5", "9-5", "0-3", "a-b", "5-", "50-60-70"),
    "run.hang_seconds": ("0", "on", "forever"),
    "device.visible": ("1.5", '""', "[[0]]", "[1.5]", "-1", "2000", "{0: 1}", "[~]"),
    "strategy.devices": ("[-1]", "none", "0.5", "[a]", "true"),
}


def _wrong_names() -> Iterator[Broken]:
    for info in OPTIONS:
        wrong = info.name + info.name[-1]
        yield _one(f"{info.key}-misspelt", f"{info.group}: {{\n  {wrong}: 1}}\n", 2, f"{info.group}.{wrong}")
    yield _one("option-on-top", "batch_size: 3\n", 1, "batch_size")
    yield _one("unlike-all", "input:\n  qqqq: 3\n", 2, "input.qqqq")
    yield _one("merge-key", "input:\n  <<: {batch_size: 3}\n", 2, "input.<<")
    yield _one("number-as-name", "input:\n  3: 3\n", 2, "input.3")
    yield _one("list-as-name", "input:\n  ? [a]\n  : 3\n", 2, "input")
    yield _one("newline-in-name", 'input:\n  "a\\nb": 3\n', 2, "input.a?b")
    yield _one("control-in-name", 'input:\n  "a\\eb": 3\n', 2, "input.a?b")
    yield _one("twice-in-group", "input:\n  shuffle: 3\n  shuffle: 4\n", 3, "input.shuffle")
    yield _one("group-twice", "input: {shuffle: 3}\ntrain: {}\ninput: {shuffle: 4}\n", 3, "input")


def _wrong_groups() -> Iterator[Broken]:
    for group in GROUPS:
        yield _one(f"{group}-list", f"{group}:\n- 1\n- 2\n", 2, group)
        yield _one(f"{group}-text", f"{group}: fast\n", 1, group)
        yield _one(f"{group}-number", f"{group}: 3\n", 1, group)
        yield _one(f"{group}-tag", f"{group}: !!python/object:os.system {{}}\n", 1, group)
        yield _one(f"{group}-misspelt", f"{group}{group[-1]}: {{}}\n", 1, group + group[-1])


def _wrong_heads() -> Iterator[Broken]:
    for value in ("2", "0", "'1'", "true", "null", "[1]", "{a: 1}", "99999999999999999999999"):
        yield _one(f"version-{value}", f"schema_version: {value}\n", 1, "schema_version")
    for value in ("3", "[a]", "{a: b}", "null", "true", "2001-01-01"):
        yield Broken(f"description-{value}", f"description: {value}\n".encode(), 1, "description")
    for value in ("3", "[quickstart]", "{a: b}", "null", "''", "nowhere", "quickstrat", "./no.yaml", "/", ".yaml/"):
        yield _one(f"extends-{value}", f"extends: {value}\n", 1, "extends")
    yield _one("extends-long", f"extends: {'a/' * 3000}b.yaml\n", 1, "extends")
    yield _one("extends-long-name", f"extends: {'a' * 3000}.yaml\n", 1, "extends")
    yield _one("extends-nul", 'extends: "a\\0b.yaml"\n', 1, "extends")


def _wrong_yaml() -> Iterator[Broken]:
    yield _one("tab", "input:\n\tbatch_size: 3\n", 2)
    yield _one("tab-later", "input:\n  batch_size: 3\n\tshuffle: 4\n", 3)
    yield _one("open-bracket", "input: {batch_size: 3\ntrain: {}\n", 2)
    yield _one("open-quote", "description2: 'abc\n", 2)
    yield _one("closed-only", "}\n", 1)
    yield _one("colon-twice", "input: a: b\n", 1)
    yield _one("indented-wrongly", "input:\n   batch_size: 3\n  shuffle: 4\n", 3)
    yield _one("two-documents", "input: {}\n---\ntrain: {}\n", 2)
    yield _one("percent", "%YAML 9.9\n---\ninput: {}\n", 1)
    yield _one("reserved", "input: @batch\n", 1)
    yield _one("backtick", "input: `batch`\n", 1)
    yield _one("bad-escape", 'extends: "\\q"\n', 1)
    yield _one("alias", "input: &a {batch_size: 3}\ntrain: *a\n", 2)
    yield _one("alias-of-nothing", "train: *a\n", 1)
    yield _one("merged-alias", "input: &a {batch_size: 3}\ntrain:\n  <<: *a\n", 3)
    yield _one("endless-alias", "input: &a\n  batch_size: *a\n", 2)
    lines = [f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, 10)]
    yield _one("bomb", "\n".join(["b0: &b0 [lol, lol, lol]", *lines]) + "\n", 2)
    yield _one("deep-list", "input: " + "[" * 5000 + "]" * 5000 + "\n", 1)
    yield _one("deep-list-unclosed", "input: " + "[" * 50_000 + "\n", 1)
    yield _one("deep-map", "input: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n", 1)
    yield _one("deep-block", "input:\n" + "".join(" " * i + "a:\n" for i in range(1, 300)), 9)
    yield _one("deep-dashes", "input:\n" + "- " * 3000 + "1\n", 2)
    yield _one("long-name", "input:\n  " + "n" * 900 + ": 3\n", 2, "input.nnn")
    yield _one("long-text", "input: " + "n" * 50_000 + "\n", 1, "input")
    yield _one("many-names", "".join(f"name{i}: 1\n" for i in range(5000)), 1, "name0")
    yield _one("too-large", "# \n" * 500_000, -1)
    yield Broken("a-list", b"- input\n- train\n", 1)
    yield Broken("a-word", b"quickstart\n", 1)
    yield Broken("a-number", b"3\n", 1)
    yield Broken("a-null", b"null\n", 1)
    yield Broken("tagged-root", b"!!python/object:os.system\ninput: {batch_size: 3}\n", 1)
    yield Broken("json-list", b'[{"input": {"batch_size": 3}}]', 1)


def _no_text() -> Iterator[Broken]:
    for name, content in {
        "empty": b"",
        "newline": b"\n",
        "comment": b"# nothing\n\n# at all\n",
        "spaces": b"   \n  \n",
        "marker": b"---\n",
        "markers": b"---\n...\n",
        "bom": b"\xef\xbb\xbf",
        "elf": b"\x7fELF\x02\x01\x01" + bytes(64),
        "png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        "zip": b"PK\x03\x04" + bytes(range(128, 256)),
        "zeros": bytes(5000),
        "utf16": "input: {batch_size: 3}\n".encode("utf-16"),
        "utf16-bare": "input: {batch_size: 3}\n".encode("utf-16-le"),
        "latin1": "description: Prüfung\n".encode("latin-1"),
        "half-character": b"description: \xe2\x82",
        "surrogate": b"description: \xed\xa0\x80\n",
    }.items():
        yield Broken(name, content, 1)
    for byte in (0, 1, 7, 8, 11, 12, 27, 127):
        yield Broken(f"control-{byte}", HEAD.encode() + b"extends: a" + bytes([byte]) + b"b\n", 3)
    yield Broken("latin1-later", HEAD.encode() + "\ninput: {cache: Größe}\n".encode("latin-1"), 4)
