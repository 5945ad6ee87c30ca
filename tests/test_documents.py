"""The documents name what exists: links, commands, options, make targets, files; their tables are those of the code."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from benchmarks import advice
from tests.doors.engine import EVENT_FILES, GROUPS, OPTIONS, presets, resolve_key
from tests.doors.tui import cli_cli as cli
from tests.doors.tui import settings, tui_cli
from tests.support import recorded

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = "engine|tui|tests|docs|presets|examples|benchmarks"
README_LINES = 120
EXAMPLE = "input.ram_budget_mb"  # the option that extending.md adds

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?<![\w./~-])((?:{FOLDERS})/[\w.*/-]*)")
OPTION = re.compile(rf"(?<![\w.]){'(' + '|'.join(GROUPS) + ')'}\.(?!py\b)([a-z_0-9]+)(?=[=\s`:,;)]|$)")
VARIABLE = re.compile(r"\bGPUTUI_[A-Z]+\b")


def tables() -> ModuleType:
    """docs/tables.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def text(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def prose(document: Path) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^    .*$", "", FENCED.sub("", text(document)), flags=re.MULTILINE)


def code(document: Path) -> list[str]:
    """Every line of a block of code, and all code within a line."""
    fenced = [line for block in FENCED.findall(text(document)) for line in block.splitlines()[1:-1]]
    indented = re.findall(r"^    (.*)$", FENCED.sub("", text(document)), re.MULTILINE)
    return [*fenced, *indented, *INLINE.findall(prose(document))]


def named(pattern: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    """Whatever a pattern finds in the code of a document."""
    for document in DOCUMENTS:
        for line in code(document):
            for match in pattern.finditer(line):
                yield document, match[0]


def anchors(document: Path) -> set[str]:
    """What GitHub makes of the headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCED.sub("", text(document)), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = next(count for count in range(100) if (f"{slug}-{count}" if count else slug) not in found)
        found.add(f"{slug}-{number}" if number else slug)
    return found


def test_the_tables_of_the_documents_are_those_of_the_code() -> None:
    made = tables()
    assert [path.name for path in DOCUMENTS if made.replaced(text(path)) != text(path)] == [], "run `make docs`"
    for name in made.TABLES:
        begin, end = made.marks(name)
        found = [path.name for path in DOCUMENTS if begin in text(path) and end in text(path)]
        assert found, f"no document has the table {name}"


def test_every_option_stands_once_in_each_table_of_options() -> None:
    made = tables()
    for table, options in (
        (made.options(), OPTIONS),
        (made.own(), [info for info in OPTIONS if info.about.own != "applies"]),
    ):
        assert {info.key: table.count(f"`{info.key}`") for info in OPTIONS} == {
            info.key: int(info in options) for info in OPTIONS
        }


def test_the_schema_of_runs_is_that_of_the_code() -> None:
    made = tables()
    assert json.loads(made.RUN_SCHEMA.read_text()) == made.run_schema(), "run `make docs`"


def test_the_schema_of_presets_is_that_of_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert tui_cli.run(["presets", "schema"]) == 0
    assert capsys.readouterr().out == (presets.SHIPPED / "schema.json").read_text(), "run `make docs`"


def test_the_schema_names_and_describes_all_that_a_run_has_written(tmp_path: Path) -> None:
    schema = tables().run_schema()
    for number, outcome in enumerate(("ok", "oom")):
        run = recorded.write(tmp_path, name=f"run-{number}", gpus=2, outcome=outcome, seconds=20)
        lines = [line for file in EVENT_FILES for line in (run.path / file).read_text().splitlines()]
        assert len(lines) > 40
        for event in map(json.loads, lines):
            assert list(misfits(event, schema["$defs"][event["type"]], schema["$defs"])) == [], event
        result = json.loads((run.path / "result.json").read_text())
        assert list(misfits(result, schema["$defs"]["summary"], schema["$defs"])) == []


JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "object": (dict,), "array": (list,),
}  # fmt: skip


def misfits(value: Any, schema: Mapping[str, Any], defs: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """The places of a value that a JSON Schema refuses, or of which it says nothing, by those words of JSON Schema that
    docs/tables.py uses.
    """
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if all(any(misfits(value, part, defs)) for part in schema["anyOf"]):
            yield place
        return
    kinds = schema.get("type", [])
    types = [kind for name in ([kinds] if isinstance(kinds, str) else kinds) for kind in JSON_TYPES[name]]
    if (types and type(value) not in types) or value not in schema.get("enum", [value]):
        yield place
    if value != schema.get("const", value):
        yield place
    if isinstance(value, dict):
        yield from (f"{place}.{name}" for name in schema.get("required", []) if name not in value)
        for name, part in value.items():
            if name in schema.get("properties", {}):
                yield from misfits(part, schema["properties"][name], defs, f"{place}.{name}")
            elif "properties" in schema:
                yield f"{place}.{name}"
            else:
                yield from misfits(part, schema.get("additionalProperties", {}), defs, f"{place}.{name}")
    if isinstance(value, list):
        for part in value:
            yield from misfits(part, schema.get("items", {}), defs, f"{place}[]")


def test_every_figure_of_an_event_has_a_unit() -> None:
    found = list(figures_of(tables().run_schema()["$defs"]))
    assert len(found) > 20
    # A loss, its scale, a learning rate and its factor have no unit, a gain is a factor, evidence and the best epoch
    # name their own figure.
    assert {name for name, unit in found if not unit} == {
        "loss", "window_loss", "loss_scale", "parallelism", "value", "threshold", "expected_gain",
        "learning_rate", "factor",
    }  # fmt: skip


def figures_of(schema: Any) -> Iterator[tuple[str, str]]:
    """The names and units of all numbers in a JSON Schema that need not be whole."""
    for name, part in schema.items() if isinstance(schema, dict) else ():
        if (
            isinstance(part, dict)
            and "number" in part.get("type", ())
            and name not in ("items", "additionalProperties")
        ):
            yield name, part.get("unit", "")
        yield from figures_of(part)


def test_every_link_leads_somewhere() -> None:
    broken, seen = [], 0
    for document in DOCUMENTS:
        for target in LINK.findall(FENCED.sub("", text(document))):
            if "://" in target:
                continue
            place, _, anchor = target.partition("#")
            path = (document.parent / place).resolve() if place else document
            seen += 1
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{document.name}: {target}")
    assert seen > 30
    assert broken == []


def test_every_command_and_option_of_gputui_exists() -> None:
    wrong, seen = [], 0
    for document in DOCUMENTS:
        for line in code(document):
            for command in commands(line):
                seen += 1
                wrong += [f"{document.name}: {line.strip()}: {fault}" for fault in faults(command)]
    assert seen > 80
    assert wrong == []


def as_called(**more: Any) -> click.Context:
    """The context of gputui itself. In a context without it a command forgets `-h`, also for the tests after it: Click
    keeps the option of the help that it makes first.
    """
    return cli.make_context("gputui", [], resilient_parsing=True, **more)


def test_the_help_lists_every_command_with_a_whole_sentence() -> None:
    help_text = as_called(terminal_width=80).get_help()
    assert [
        name
        for name in cli.list_commands(as_called())
        if not re.search(rf"^  {name} +[A-Z].*\.$", help_text, re.MULTILINE)
    ] == []
    assert "...\n" not in help_text


def commands(line: str) -> Iterator[list[str]]:
    """The words behind each `gputui` of a line; what stands behind two blanks or a comma is a remark."""
    for match in re.finditer(r"(?:^|(?<=[\s/(]))gputui(?= |$)(.*?)(?=  |, |&&|[|;)]|$)", line):
        try:
            yield shlex.split(match[1], comments=True)
        except ValueError:
            yield match[1].split()


def faults(words: list[str]) -> Iterator[str]:
    """What of a command does not exist: its subcommands, its options, the keys behind --set."""
    command: click.Command = cli
    rest = iter(words)
    for word in rest:
        if word == "--" or (command.name == "run" and word.endswith(".py")):  # what follows is another program's
            return
        if isinstance(command, click.Group) and (named := command.get_command(as_called(), word)):
            command = named
        elif word.startswith("-"):
            option, _, value = word.partition("=")
            known = {name: parameter for parameter in command.params for name in parameter.opts}
            known["--help"] = known["-h"] = click.Option(["--help"], is_flag=True)
            found = known.get(option)
            if found is None:
                yield f"no option {option}"
            elif option == "--set":
                yield from key_faults(next(rest, ""))
            elif isinstance(found, click.Option) and not found.is_flag and not value:
                next(rest, None)
        elif isinstance(command, click.Group) and not (word.isupper() or word == "..." or is_preset(word)):
            yield f"no command {word}"


def is_preset(word: str) -> bool:
    """Whether the word may name a preset: a file, a script, or one that ships."""
    return word.endswith((".yaml", ".py")) or (ROOT / "presets" / f"{word}.yaml").exists()


def key_faults(setting: str) -> Iterator[str]:
    try:
        resolve_key(setting.partition("=")[0], OPTIONS)
    except KeyError as fault:
        if setting != "KEY=VALUE":
            yield str(fault.args[0])


def test_every_option_that_is_named_exists() -> None:
    keys = {info.key for info in OPTIONS}
    found = list(named(OPTION))
    assert len(found) > 40
    assert EXAMPLE not in keys
    known = {*keys, *dict(settings.declared()), EXAMPLE}
    assert {f"{document.name}: {key}" for document, key in found if key not in known} == set()


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    found = {(document.name, name.split()[1]) for document, name in named(re.compile(r"\bmake [a-z]+(?:-[a-z]+)*\b"))}
    assert len(found) > 5
    assert {(document, name) for document, name in found if name not in targets} == set()


def test_every_file_and_folder_that_is_named_exists() -> None:
    found = {(document.name, path.rstrip(".")) for document, path in named(PATH)}
    assert len(found) > 20
    assert {(document, path) for document, path in found if not any(ROOT.glob(path.rstrip("/")))} == set()


def test_every_module_of_the_map_exists() -> None:
    """Also those whose folder is left out."""
    modules = {path.relative_to(ROOT).as_posix() for folder in ("engine", "tui", "tests", "docs") for path in
               (ROOT / folder).rglob("*.py")}  # fmt: skip
    lines = [line for name in ("architecture", "extending") for line in code(ROOT / "docs" / f"{name}.md")]
    named_modules = {match for line in lines for match in re.findall(r"[\w/]+\.py\b", line)}
    assert len(named_modules) > 30
    assert {name for name in named_modules if not any(f"/{path}".endswith(f"/{name}") for path in modules)} == set()


def test_every_variable_of_the_environment_is_read_somewhere() -> None:
    source = "".join(path.read_text() for folder in ("engine", "tui") for path in (ROOT / folder).rglob("*.py"))
    found = set(named(VARIABLE))
    assert found
    assert {(document.name, name) for document, name in found if f'"{name}"' not in source} == set()


def test_every_message_that_is_quoted_is_one_of_the_program() -> None:
    said = {word for folder in ("engine", "tui") for path in (ROOT / folder).rglob("*.py") for word in messages(path)}
    shown = re.sub(r"`[^`\n]*`", "", prose(ROOT / "docs" / "troubleshooting.md"))
    quoted = [quote.removesuffix(" ...") for quote in re.findall(r'"([^"\n]+)"', shown)]
    assert len(quoted) > 9
    assert [quote for quote in quoted if not any(quote in word for word in said)] == []


def messages(path: Path) -> Iterator[str]:
    """The texts of a module, without what is filled in."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_each_command_of_the_advice_measures_a_change_of_a_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = text(ROOT / "docs" / "faster.md")
    for name, preset in advice.presets_of(page).items():
        (tmp_path / name).write_text(preset)
    measured = list(advice.rows(page))
    assert len(measured) > 15
    assert not [
        row["advice"] for row in measured if not re.match("faster|slower|no difference|undecided", row["result"])
    ]
    others = re.findall(r"`gputui (ab [^`]+)`", page)
    assert len(others) > len(measured), "the commands for a GPU"
    for command in others:
        ab = cli.get_command(as_called(), "ab")
        assert ab is not None
        given = ab.make_context("ab", shlex.split(command)[1:], as_called()).params
        name, settings = given["preset"], given["settings"]
        assert presets.resolve(name, settings).options != presets.resolve(name, []).options, command


def test_the_readme_is_short() -> None:
    assert len(text(ROOT / "README.md").splitlines()) <= README_LINES
