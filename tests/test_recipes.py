"""The worked examples of docs/extending.md ("Add an option" ...), as somebody who copies them would use them."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    KINDS,
    VERDICTS,
    About,
    Figure,
    Group,
    Kind,
    Measurement,
    Proof,
    Run,
    Trial,
    as_markdown,
    catalogue,
    folder,
    presets,
    rules,
)
from tests.doors.engine import figures_of_run as of_run
from tests.doors.engine import input as input_options
from tests.doors.engine import proof_request as request
from tests.doors.engine import proof_request_Request as Request
from tests.doors.tui import SCREENS, ProofScreen, ScreenEntry, base, errors, measuring
from tests.support.proving import HERE, Planted, PlantedBench
from tests.support.tiny import Tiny, text_of, wait_for

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def recipe(title: str) -> str:
    """The text of a section of extending.md."""
    text = (ROOT / "docs" / "extending.md").read_text()
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(title: str) -> list[str]:
    """The Python examples of a recipe, without their indentation."""
    return [textwrap.dedent(code) for _, code in BLOCK.findall(recipe(title))]


def test_the_example_of_an_option_is_an_option_and_its_function_obeys_it() -> None:
    declaration, use = blocks("Add an option")
    names: dict[str, Any] = {**vars(input_options)}
    exec(f"class Example(Group):\n{textwrap.indent(declaration, '    ')}", names)
    example: type[Group] = dataclass(frozen=True)(names["Example"])
    (info,) = catalogue({"input": example})
    assert info.key not in {f"input.{info.name}" for info in fields(input_options.Input)}
    assert (info.key, info.accepts) == ("input.ram_budget_mb", "a whole number from 64 to 10,000,000 or null")
    assert info.about.other_names == ("memory_budget", "autotune_ram")
    settings = SimpleNamespace(autotune=SimpleNamespace())
    exec(use, {"given": SimpleNamespace(ram_budget_mb=100), "settings": settings})
    assert settings.autotune.ram_budget == 100_000_000
    function = (
        (ROOT / "engine/trainer/data/finishing.py").read_text().partition("\ndef ahead(")[2].partition("\ndef ")[0]
    )
    assert "given = options.input" in function, "the example takes its names from this function"
    assert "settings = tf.data.Options()" in function


def test_the_fields_that_an_option_may_have_are_those_of_its_declaration() -> None:
    named = re.findall(r"^ *\| `(\w+)=", recipe("Add an option"), re.MULTILINE)
    assert len(named) == 6
    assert set(named) <= {field.name for field in fields(About)}


def test_the_example_of_a_figure_is_its_declaration() -> None:
    (declaration,) = blocks("Add a figure")
    figure = eval(declaration, {"Figure": Figure})
    assert figure == of_run("gpu_power_mean_w")


def test_the_example_of_a_verdict_is_its_declaration() -> None:
    (declaration,) = blocks("Add a diagnosis rule")
    verdict = eval(declaration, vars(rules))
    assert verdict == VERDICTS["memory_limit"]
    assert rules.RULES.count(replace(verdict.rules[0], verdict="memory_limit")) == 1


def test_the_example_of_a_measurement_measures_and_its_kind_is_declared(tmp_path: Path) -> None:
    module, entry = blocks("Add a measurement")
    names: dict[str, Any] = {"__name__": "gputui.engine.proof.steadiness", "__package__": "gputui.engine.proof"}
    exec(compile(module, "steadiness", "exec"), names)
    (kind,) = eval(entry, {"Kind": Kind}).values()
    assert kind.module == names["__name__"]
    asked = request.of_opened("steadiness", presets.defaults([]), repeats=4)
    record = folder.empty_record(tmp_path, asked)
    bench = PlantedBench(tmp_path, lambda _options, before: Planted(1000 + 100 * before))
    names["measure"](Measurement(asked, record, bench, HERE))
    assert (record.answer, record.doing) == ("the speed of 4 trials differs by 30 %", "trial 4 of 4")
    assert record.sections[0].rows[3] == ["04-a", "1,300"]
    assert "| 04-a | 1,300 |" in as_markdown(record)
    record.sections[0].rows = [["short"], ["1", "2", "3"]]  # as a damaged record may have them
    assert record.sections[0].table.rows == [["short", ""], ["1", "2"]]
    again = folder.empty_record(tmp_path, asked)
    names["measure"](Measurement(asked, again, bench, HERE, record.all_trials))
    assert (again.answer, again.doing, len(bench.asked)) == (record.answer, "", 4), "nothing is trained or said again"


def test_a_training_for_the_loss_needs_no_expected_time_and_its_seed_is_never_too_large(tmp_path: Path) -> None:
    asked = request.of_opened("steadiness", presets.defaults(["run.max_minutes=3"]))
    bench, rows = PlantedBench(tmp_path, lambda _options, _before: Planted()), list[Trial]()
    bench.seed = 2**31 - 2
    measurement = Measurement(asked, folder.empty_record(tmp_path, asked), bench, HERE)
    for repeat in (1, 2):
        measurement.learn(measurement.preset, "a", repeat, (1, 5), rows)
    assert [trial.good for trial in rows] == [True, True]
    trained = [(options.train.seed, options.run.max_minutes) for options in bench.asked]
    assert trained == [(2**31 - 2, 3.0), (0, 3.0)]


def test_the_help_has_the_command_of_a_kind() -> None:
    entry = blocks("Add a measurement")[1]
    program = f"from gputui.engine.trials.kinds import KINDS, Kind\nKINDS.update({entry.strip()})\n"
    program += "import sys\nfrom gputui.tui.cli import main\nmain(sys.argv[1:])"
    for words, line in (((), "\n  steadiness  Measure how much the speed differs"), (("steadiness",), "\n  --resume ")):
        shown = subprocess.run([sys.executable, "-c", program, *words, "--help"], check=True, stdout=subprocess.PIPE)
        assert line in shown.stdout.decode()


async def test_what_is_measured_by_a_kind_is_begun_by_its_command_and_gone_on_with_by_both(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[Request, Proof | None]] = []
    monkeypatch.setitem(KINDS, "steadiness", eval(blocks("Add a measurement")[1], {"Kind": Kind})["steadiness"])
    monkeypatch.setattr(measuring, "measure", lambda asked, _how, resumed=None: begun.append((asked, resumed)))
    command = measuring.command_of_kind("steadiness")
    command.main(["--preset", "quickstart", "--repeats", "4"], standalone_mode=False)
    ((asked, _),) = begun
    assert (asked.kind, asked.preset_name, asked.repeats) == ("steadiness", "quickstart", 4)
    record = folder.create(asked).record
    record.state = "stopped"
    record.put()
    command.main(["--resume"], standalone_mode=False)
    proof = folder.find("latest")
    assert begun[1:] == [(asked, proof)]
    with pytest.raises(errors.Refused, match="a resumed measurement of steadiness keeps its preset and options"):
        command.main(["--resume", "--repeats", "5"], standalone_mode=False)
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "R Go on")


async def test_the_example_of_a_screen_shows_what_it_reads(tmp_path: Path) -> None:
    module, listed = blocks("Add a screen")
    entry = eval(listed, {"ScreenEntry": ScreenEntry})
    names: dict[str, Any] = {"__name__": f"{base.__package__}.{entry.module}", "__package__": base.__package__}
    exec(compile(module, entry.module, "exec"), names)
    assert entry.name not in {screen.name for screen in SCREENS}
    (tmp_path / "events.jsonl").write_bytes(bytes(2048))
    async with Tiny(lambda: names[entry.class_name](Run(tmp_path))).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "events.jsonl  2.0 KiB")
        (tmp_path / "later").write_bytes(b"1")
        await wait_for(pilot, "later         1 B")
        assert "events.jsonl" in text_of(pilot.app)
