"""Odd presets: with one thing wrong in each, and where; and drawn ones, from the harmless to the absurd."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from hypothesis import strategies as st

from tests.doors.engine import GROUPS, OPTIONS, OptionInfo, presets

INFO = {info.key: info for info in OPTIONS}
HEAD = "# a comment\ndescription: broken\n"


@dataclass(frozen=True)
class Broken:
    name: str
    content: bytes


def all_broken() -> list[Broken]:
    return [*_wrong_values(), *_wrong_names(), *_wrong_groups(), *_wrong_heads(), *_wrong_yaml(), *_no_text()]


def _one(name: str, text: str) -> Broken:
    return Broken(name, (HEAD + text).encode())


def _option(info: OptionInfo, name: str, value: str) -> Broken:
    text = f"{info.group}:\n  {info.name}: {value}\n"
    return _one(f"{info.key}-{name}", text)


def _wrong_values() -> Iterator[Broken]:
    """Each option with values that no option takes, then with what its type or range excludes."""
    for info in OPTIONS:
        if not isinstance(info.default, dict):
            yield _option(info, "map", "{a: 1, b: 2}")
        yield _option(info, "nested-list", "[[1], [2]]")
        yield _option(info, "date", "2001-01-01")
        for name, value in (("word", "maybe"), ("number", "1")) if info.is_bool else ():
            yield _option(info, name, value)
        for value in ("-1", "1" + "0" * 400, ".nan", ".inf", "'3.5'") if info.is_number else ():
            yield _option(info, value[:6], value)
        if info.choices:
            yield _option(info, "word", "nonsense!")
    for line in _SPECIAL.strip().splitlines():
        key, _, values = line.partition(": ")
        for value in (*values.split(" | "), *(["9" * 5000] if key == "input.batch_size" else [])):
            yield _option(INFO[key], f"special-{value[:30]}", value)


_SPECIAL = r"""
workload.data: "" | npz | "npz:" | ftp:x | Digits | {npz: [1]} | {npz: null} | {a: 1} | [digits] | "npz:a\0b"
workload.shape: [] | [0] | [-1, 2] | [1, 2, 3, 4] | [8.5] | [true] | [99999999] | 8
workload.width: 0 | 0.0001 | 1e300 | 1e999 | wide
workload.entry: "" | train.py | build | ":build" | "train.py:" | train.py:b-c | "a.b:" | a..b:c | 3 | [a]
workload.args: 3 | text | [1] | {1: 2} | {a: 2001-01-01} | {a: .nan} | {a: {b: !!binary aGVsbG8=}}
workload.classes: 1 | 0x7fffffffffff | 10.0 | 1:30:00:00:00
input.batch_size: 0 | 1.5 | 1e3 | '64' | sixty | null | true | off | 1_000_000_000_000 | 99999999999999999999999999
input.batch_size: !!int many | !!timestamp soon | !!binary aGVsbG8= | !!float x | !!bool maybe | !!set {a}
input.batch_size: !!python/name:os.system | !!python/object/apply:os.system ['false'] | !unknown 3 | =
input.cache: "" | on | [memory] | "a\0b" | 7
input.prefetch: 0 | -3 | 2.5 | on | null
train.learning_rate: 0 | fast | 1e- | 1e4 | 0.1 0.2 | [0.1]
train.validation_split: 1 | 0.95 | -0.1 | 10%
run.profile: 5 | 9-5 | 0-3 | a-b | 5- | 50-60-70
run.hang_seconds: 0 | on | forever
device.visible: 1.5 | "" | [[0]] | [1.5] | -1 | 2000 | {0: 1} | [~]
strategy.devices: [-1] | none | 0.5 | [a] | true
"""


def _wrong_names() -> Iterator[Broken]:
    for info in OPTIONS:
        wrong = info.name + info.name[-1]
        yield _one(f"{info.key}-misspelt", f"{info.group}: {{\n  {wrong}: 1}}\n")
    yield _one("option-on-top", "batch_size: 3\n")
    yield _one("unlike-all", "input:\n  qqqq: 3\n")
    yield _one("merge-key", "input:\n  <<: {batch_size: 3}\n")
    yield _one("number-as-name", "input:\n  3: 3\n")
    yield _one("list-as-name", "input:\n  ? [a]\n  : 3\n")
    yield _one("newline-in-name", 'input:\n  "a\\nb": 3\n')
    yield _one("control-in-name", 'input:\n  "a\\eb": 3\n')
    yield _one("twice-in-group", "input:\n  shuffle: 3\n  shuffle: 4\n")
    yield _one("group-twice", "input: {shuffle: 3}\ntrain: {}\ninput: {shuffle: 4}\n")


def _wrong_groups() -> Iterator[Broken]:
    for group in GROUPS:
        yield _one(f"{group}-list", f"{group}:\n- 1\n- 2\n")
        yield _one(f"{group}-text", f"{group}: fast\n")
        yield _one(f"{group}-number", f"{group}: 3\n")
        yield _one(f"{group}-tag", f"{group}: !!python/object:os.system {{}}\n")
        yield _one(f"{group}-misspelt", f"{group}{group[-1]}: {{}}\n")


def _wrong_heads() -> Iterator[Broken]:
    for value in ("2", "0", "'1'", "true", "null", "[1]", "{a: 1}", "99999999999999999999999"):
        yield _one(f"version-{value}", f"schema_version: {value}\n")
    for value in ("3", "[a]", "{a: b}", "null", "true", "2001-01-01"):
        yield Broken(f"description-{value}", f"description: {value}\n".encode())
    for value in ("3", "[quickstart]", "{a: b}", "null", "''", "nowhere", "quickstrat", "./no.yaml", "/", ".yaml/"):
        yield _one(f"extends-{value}", f"extends: {value}\n")
    yield _one("extends-long", f"extends: {'a/' * 3000}b.yaml\n")
    yield _one("extends-long-name", f"extends: {'a' * 3000}.yaml\n")
    yield _one("extends-nul", 'extends: "a\\0b.yaml"\n')


def _wrong_yaml() -> Iterator[Broken]:
    yield _one("tab", "input:\n\tbatch_size: 3\n")
    yield _one("open-bracket", "input: {batch_size: 3\ntrain: {}\n")
    yield _one("open-quote", "description2: 'abc\n")
    yield _one("colon-twice", "input: a: b\n")
    yield _one("indented-wrongly", "input:\n   batch_size: 3\n  shuffle: 4\n")
    yield _one("two-documents", "input: {}\n---\ntrain: {}\n")
    yield _one("percent", "%YAML 9.9\n---\ninput: {}\n")
    yield _one("reserved", "input: @batch\n")
    yield _one("bad-escape", 'extends: "\\q"\n')
    yield _one("alias", "input: &a {batch_size: 3}\ntrain: *a\n")
    yield _one("endless-alias", "input: &a\n  batch_size: *a\n")
    lines = [f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, 10)]
    yield _one("bomb", "\n".join(["b0: &b0 [lol, lol, lol]", *lines]) + "\n")
    yield _one("deep-list", "input: " + "[" * 5000 + "]" * 5000 + "\n")
    yield _one("deep-list-unclosed", "input: " + "[" * 50_000 + "\n")
    yield _one("deep-map", "input: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n")
    yield _one("deep-block", "input:\n" + "".join(" " * i + "a:\n" for i in range(1, 300)))
    yield _one("deep-dashes", "input:\n" + "- " * 3000 + "1\n")
    yield _one("long-name", "input:\n  " + "n" * 900 + ": 3\n")
    yield _one("long-text", "input: " + "n" * 50_000 + "\n")
    yield _one("many-names", "".join(f"name{i}: 1\n" for i in range(5000)))
    yield _one("too-large", "# \n" * 500_000)
    yield Broken("a-list", b"- input\n- train\n")
    yield Broken("a-word", b"quickstart\n")
    yield Broken("a-null", b"null\n")
    yield Broken("tagged-root", b"!!python/object:os.system\ninput: {batch_size: 3}\n")
    yield Broken("json-list", b'[{"input": {"batch_size": 3}}]')


def _no_text() -> Iterator[Broken]:
    png, zipped, bare = b"\x89PNG\r\n\x1a\n" + bytes(range(256)), b"PK\x03\x04" + bytes(range(128, 256)), "utf-16-le"
    for content in (
        b"", b"\n", b"# nothing\n\n# at all\n", b"   \n  \n", b"---\n", b"---\n...\n", b"\xef\xbb\xbf",
        b"\x7fELF\x02\x01\x01" + bytes(64), png, zipped, bytes(5000), "input: {batch_size: 3}\n".encode("utf-16"),
        "input: {batch_size: 3}\n".encode(bare), "description: Prüfung\n".encode("latin-1"),
        b"description: \xe2\x82", b"description: \xed\xa0\x80\n",
    ):  # fmt: skip
        yield Broken(repr(content[:30]), content)
    for byte in (0, 1, 7, 8, 11, 12, 27, 127):
        yield Broken(f"control-{byte}", HEAD.encode() + b"extends: a" + bytes([byte]) + b"b\n")
    yield Broken("latin1-later", HEAD.encode() + "\ninput: {cache: Größe}\n".encode("latin-1"))


# ---- drawn --------------------------------------------------------------------------------------

_ODD = (
    "", "null", "~", "true", "off", "yes", "010", "-017", "1:30", "1:30:00.5", "0b101", "0x1f", "1_000", "1e3", "1e999",
    ".nan", ".inf", "-1", "0", "3.5", "'7'", "2001-01-01", "2001-01-01 10:00:00", "[]", "{}", "[1, [2, [3]]]", "{a: b}",
    "{? [a] : b}", "*a", "&a 1", "!!int x", "!!python/name:os.system", "!!binary aGk=", "!!set {a, b}", "|", ">", "@",
    "`x`", "'unclosed", '"\\e[2J\\a"', '"\\0"', '"\\uD800"', "\u202e\u200b", "é" * 20, "digits", "npz:",
    "npz:/dev/null", "npz:/dev", "images:/proc/self", "tfrecord:/dev/*", "train.py:build", "/dev/zero.py:build",
    "a.b:c", "os:system", "9" * 400, "9" * 6000, "0x" + "f" * 6000, "0b" + "1" * 6000, "1:" * 300 + "1", "a" * 3000,
    "a/" * 1500 + "b", "/" + "x" * 300, "npz:" + "x" * 5000, "'" + "w " * 900 + "'", "[" * 30 + "]" * 30,
    "[" + "1, " * 2000 + "]", "{" + ", ".join(f"a{i}: {i}" for i in range(300)) + "}",
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(_ODD),
    st.sampled_from([str(choice) for info in OPTIONS for choice in info.choices]),
    st.integers(-(10**30), 10**30).map(str),
    st.floats().map(repr),
    st.text(max_size=40),
)
KEYS = st.sampled_from(list(INFO))


def _with(values: Mapping[str, str]) -> bytes:
    groups: dict[str, str] = {}
    for key, value in values.items():
        group, _, name = key.partition(".")
        groups[group] = groups.get(group, f"{group}:\n") + f"  {name}: {value}\n"
    return "".join(groups.values()).encode()


def _likely(key: str) -> st.SearchStrategy[str]:
    """What fits by itself: the rules between options are asked."""
    info = INFO[key]
    return st.sampled_from([*info.choices, info.default, 1, 2, 7, 0.5, "off", "all", True, False, None]).map(json.dumps)


@cache
def _texts() -> list[bytes]:
    known = [broken.content[:50_000] for broken in all_broken()]
    shipped = [presets.resolve(name).to_yaml().encode() for name in presets.named_presets()]
    return [*known, *shipped, *(path.read_bytes() for path in presets.SHIPPED.glob("*.yaml"))]


@st.composite
def _edited(draw: st.DrawFn) -> bytes:
    """A preset of which lines or bytes are lost, come again, or have something else before them."""
    text = draw(st.sampled_from(_texts()))
    pieces = re.split(rb"(\n)", text) if draw(st.booleans()) else [bytes([byte]) for byte in text]
    odd = st.sampled_from([b"", b"   ", b"\x1b[2J", b"{", b"]", b"'", b'"', b"\t", b": ", b"- ", b"&a"])
    odd |= st.binary(max_size=3) | VALUES.map(str.encode)
    for _ in range(draw(st.integers(1, 5))):
        at, lost, again = draw(st.integers(0, len(pieces))), draw(st.integers(0, 3)), draw(st.integers(0, 50))
        pieces[at : at + lost] = [draw(odd | st.just(b"".join(pieces[:again])))]
    return b"".join(pieces)


MUTATED = st.one_of(
    st.dictionaries(KEYS, VALUES, min_size=1, max_size=4).map(_with),
    st.lists(KEYS, min_size=1, max_size=20, unique=True)
    .flatmap(lambda keys: st.fixed_dictionaries({key: _likely(key) for key in keys}))
    .map(_with),
    _edited(),
    st.binary(max_size=300),
    st.text("{}[]:,-&*#?|>!%@`'\"\\ \n\tabc019._~=<", max_size=200).map(str.encode),
)
