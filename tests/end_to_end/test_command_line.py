"""The command line itself: what each command takes, within which limits, and what it refuses, to the letter."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pytest
from gputui.engine import presets
from gputui.engine.interpreter import interpreter
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Machine
from gputui.engine.proof.request import Request
from gputui.tui import cli as command_line
from gputui.tui.cli.command import cli
from gputui.tui.commands import proof

from tests.support import recorded
from tests.support.cases import all_hold


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands with their names, also those within a command."""
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")


def described(parameter: click.Parameter) -> str:
    """The names of a parameter, its type with the limits, its default, and how often it is given."""
    kind: Any = parameter.type
    words = [" ".join(parameter.opts), kind.name]
    if isinstance(kind, click.IntRange | click.FloatRange):
        low, high = ("<" if kind.min_open else "<="), ("<" if kind.max_open else "<=")
        words.append(f"{kind.min} {low} x {high} {kind.max}")
    words += ["/".join(map(str, kind.choices))] if isinstance(kind, click.Choice) else []
    if isinstance(parameter, click.Option):
        words += [f"alone {parameter.flag_value!r}"] if isinstance(parameter.flag_value, str) else []
        words += ["shows its default"] if parameter.show_default else []
    words.append(f"default {parameter.default!r}" if isinstance(parameter.default, bool | int | float | str) else "")
    words += [name for name in ("multiple", "required") if getattr(parameter, name, False)]
    words += [] if parameter.nargs == 1 else [f"nargs {parameter.nargs}"]
    return ", ".join(filter(None, words))


def test_what_each_command_takes(snapshot: Any) -> None:
    lines = []
    for name, command in [("gputui", cli), *commands(cli)]:
        lines += [f"{name}:", *(f"  {described(parameter)}" for parameter in command.params)]
    assert "\n".join(lines) == snapshot


# ---- what is refused ------------------------------------------------------------------------------

REFUSED = {
    # the command that trains
    **dict.fromkeys(
        ("--set xla=true", "--json", "--detach", "--dry-run", "--resume-if-any", "--cluster a:1", "--worker 0",
         "--code new", "--wait", "--anyway", "--queue", "--after r1"),
        "name a preset, such as gputui --preset quickstart; gputui presets lists them",
    ),
    **{
        f"--preset quickstart --dry-run {word}":
            "--dry-run starts and resumes nothing: it goes with --preset, --set and --cluster alone"
        for word in ("--json", "--detach", "--resume-if-any", "--wait", "--anyway")
    },
    **{
        f"{words} --json --detach": "--json follows the run, and --detach does not: leave one of them out"
        for words in ("--preset quickstart", "resume r1")
    },
    "--preset quickstart --code new":
        "--code=new is for a run that is resumed: gputui resume RUN, or --resume-if-any",
    "--preset quickstart --code copy --dry-run":
        "--code=copy is for a run that is resumed: gputui resume RUN, or --resume-if-any",
    **{
        f"--preset quickstart --queue {word}":
            "--queue starts nothing now: it goes with --preset, --set, --after and --anyway alone"
        for word in ("--json", "--detach", "--dry-run", "--resume-if-any", "--wait", "--cluster a:1")
    },
    "--preset quickstart --after r1": "--after RUN needs --queue",
    "--preset quickstart --worker 1":
        "--worker needs --cluster HOST1:PORT,HOST2:PORT, the addresses of all workers",
    "--preset quickstart --queue --worker 1":
        "--worker needs --cluster HOST1:PORT,HOST2:PORT, the addresses of all workers",
    # a preset's form, and other commands
    "--json quickstart": "--json, --detach and --dry-run need no screen: gputui --preset NAME",
    "--detach quickstart": "--json, --detach and --dry-run need no screen: gputui --preset NAME",
    "--resume-if-any quickstart": "--resume-if-any needs no screen: gputui --preset NAME",
    "--resume-if-any --code new quickstart": "--code needs no screen: gputui --preset NAME",
    "--resume-if-any --code copy quickstart": "--code needs no screen: gputui --preset NAME",
    "--wait quickstart": "--wait and --anyway need no screen: gputui --preset NAME",
    "--anyway quickstart": "--wait and --anyway need no screen: gputui --preset NAME",
    "--wait --queue quickstart": "--queue needs no screen: gputui --preset NAME",
    "--after r1 quickstart": "--after needs no screen: gputui --preset NAME",
    "--preset quickstart quickstart":
        "name one preset: gputui --preset NAME trains without the screen, gputui NAME opens the form",
    "--queue --worker 0 quickstart": "--cluster and --worker need no screen: gputui --preset NAME",
    "--cluster a:1 quickstart": "--cluster and --worker need no screen: gputui --preset NAME",
    "--json runs": "--preset and what belongs to it do not go with the command 'runs'",
    "--preset quickstart runs": "--preset and what belongs to it do not go with the command 'runs'",
    "--set xla=true runs": "--preset and what belongs to it do not go with the command 'runs'",
    "quickstart --cluster a:1":
        "--cluster and --worker need no screen: gputui --preset quickstart --cluster ...",
    "quickstart --worker 0": "--cluster and --worker need no screen: gputui --preset quickstart --cluster ...",
    # runs and the queue
    "history r1 --csv --jsonl": "--csv and --jsonl do not go together",
    "compare r1 r2 --json --csv": "--json and --csv do not go together",
    "queue service --install --remove": "--install and --remove do not go together",
    "proof latest --json --markdown": "--json and --markdown do not go together",
    "runs --json rm": "the filters of the list do not go with 'rm'",
    "runs --tag a rm": "the filters of the list do not go with 'rm'",
    "runs --state done rm": "the filters of the list do not go with 'rm'",
    "runs --last 3 rm": "the filters of the list do not go with 'rm'",
    "queue --json pause": "--json does not go with 'pause'",
    "resume": "name one run to resume, or give --latest alone; gputui runs lists them",
    "resume r1 --latest": "name one run to resume, or give --latest alone; gputui runs lists them",
    **{
        f"resume r1 --queue {word}":
            "--queue resumes nothing now: leave out --json, --detach, --wait and --cluster"
        for word in ("--json", "--detach", "--wait", "--cluster a:1")
    },
    "resume r1 --after r2": "--after RUN needs --queue",
    "resume r1 --worker 0": "--worker needs --cluster HOST1:PORT,HOST2:PORT, the addresses of all workers",
    "watch RUN --replay=0": "--replay takes a number above 0",
    "watch RUN --replay=0.0": "--replay takes a number above 0",
    "watch RUN --replay=1e6": "--replay takes a number above 0",
    "watch RUN --replay=nan": "--replay takes a number above 0",
    "watch RUN --replay=x": "--replay takes a number such as --replay=10, not 'x'",
    "logs -n -1": "Invalid value for '-n' / '--lines': -1 is not in the range x>=0.\n"
                  "gputui logs --help shows what there is",
    **{
        f"compare {words}":
            "--pin RUN and --unpin cannot be combined with anything else; compare runs with a second command"
        for words in ("RUN --pin RUN", "--pin RUN --baseline RUN", "--pin RUN --csv", "--pin RUN --unpin",
                      "--unpin RUN", "--unpin --json", "--unpin --baseline RUN")
    },
    "compare RUN": "name two or more runs, or pin one first: gputui compare --pin RUN; gputui runs lists them",
    "compare": "name two or more runs, or pin one first: gputui compare --pin RUN; gputui runs lists them",
    "compare RUN --baseline RUN": "name a run other than the baseline, ID; gputui runs lists them",
    "tag RUN -d": "name the tags to remove",
    "tag RUN -d a b": "RUN has no tag a or b; gputui tag RUN prints its tags",
    "follow RUN --detach": "--detach needs --to TARGET",
    # measurements
    "diagnose": "name a run, such as gputui diagnose latest, or give --preset",
    "diagnose RUN --preset quickstart": "name a run, such as gputui diagnose latest, or give --preset",
    "diagnose RUN --set xla=true": "--set needs --preset; a run already has its settings",
    "diagnose RUN --set xla=true --apply": "--set needs --preset; a run already has its settings",
    "diagnose RUN --minutes 3": "--minutes needs --apply",
    "diagnose --preset quickstart -o a.yaml": "--output needs --apply",
    "diagnose RUN --profile": "--profile needs --preset; for a run, set run.profile",
    "diagnose RUN --repeats 3": "--repeats needs --apply or --preset, which measure",
    "diagnose RUN --seconds 3": "--seconds needs --apply or --preset, which measure",
    "diagnose RUN --anyway": "--anyway needs --apply or --preset, which measure",
    "diagnose RUN --wait": "--wait needs --apply or --preset, which measure",
    "diagnose RUN --queue": "--queue needs --apply or --preset, which measure",
    "ab --preset quickstart --set xla=true --after r1": "--after RUN needs --queue",
    **{
        f"ab --preset quickstart --set xla=true --queue {word}":
            "--queue measures nothing now: leave out --json, --markdown, --wait and -o; gputui proof ID "
            "shows the result, and -o FILE there saves the improved preset"
        for word in ("--json", "--wait")
    },
    "diagnose --preset quickstart --apply --queue -o a.yaml":
        "--queue measures nothing now: leave out --json, --markdown, --wait and -o; gputui proof ID "
        "shows the result, and -o FILE there saves the improved preset",
    "ab --preset quickstart --set xla=true --repeats 2":
        "Invalid value for '--repeats': 2 is not in the range x>=3.\ngputui ab --help shows what there is",
    "tune --preset quickstart --minutes nan":
        "Invalid value for '--minutes': nan is not a number of minutes.\ngputui tune --help shows what there is",
    "tune --preset quickstart --minutes 0":
        "Invalid value for '--minutes': 0.0 is not in the range 0<x<=10000000.\n"
        "gputui tune --help shows what there is",
    "scaling": "name what to measure: gputui scaling --preset NAME, or --resume for the latest measurement",
    **{
        f"scaling --resume {words}":
            "a resumed measurement keeps its preset and replicas: leave them out with --resume"
        for words in ("--preset quickstart", "--replicas 1,2", "--repeats 3", "--seconds 3", "--copies 2", "-o a")
    },
    **{
        f"scaling --resume{words}":
            "there is no measurement of scaling to go on with; gputui scaling --preset NAME starts one"
        for words in ("", " --json --wait --anyway", " --markdown", " --queue --after RUN")
    },
    "scaling --preset quickstart --copies 2 --keep global":
        "--copies trains several copies of one training on one device: leave out --replicas and --keep",
    "scaling --preset quickstart --copies 2 --replicas 2":
        "--copies trains several copies of one training on one device: leave out --replicas and --keep",
    "scaling --preset quickstart -o a.yaml":
        "-o saves the preset with the number of runs on a GPU that pays: it needs --copies",
    "scaling --preset quickstart --copies 2 -o a.yaml":
        "-o saves the number of runs on a GPU that pays, and this preset trains on the CPU: leave it out",
    **{
        f"scaling --preset quickstart --replicas {words}":
            f"--replicas takes numbers of replicas from 1 to 1024, such as 1,2,4, not '{words}'"
        for words in ("0", "2,1025", "a")
    },
    "scaling --preset quickstart --copies 17":
        "--copies takes numbers of copies from 1 to 16, such as 1,2,4, not '17'",
    "sweep": "name what to sweep: gputui sweep --preset NAME --over KEY=VALUES, or --resume for the latest",
    **{
        f"sweep --resume {words}": "a resumed sweep keeps its preset and settings, but for --minutes: leave them out"
        for words in ("--preset quickstart", "--over epochs=1,2", "--seeds 2", "--metric loss")
    },
    **{
        f"sweep --resume{words}":
            "there is no sweep to go on with; gputui sweep --preset NAME --over KEY=VALUES starts one"
        for words in ("", " --minutes 3 -o a.yaml --json", " --markdown")
    },
    **{
        f"{words}": "there is no search to go on with; gputui tune --preset NAME starts one"
        for words in ("tune --resume", "fit-batch --resume --minutes 3 -o a.yaml --json --wait --anyway",
                      "tune --resume --queue --after RUN")
    },
    **{
        f"tune --resume {words}": "a resumed search keeps its preset and limits, but for --minutes: leave them out"
        for words in ("--preset quickstart", "--only xla", "--leave input.shuffle", "--repeats 4", "--seconds 2",
                      "--precision float32", "--dry-run", "--largest-batch 8", "--memory-gb 1", "--set xla=true")
    },
    "tune": "name what to tune: gputui tune --preset NAME, or --resume for the latest search",
    "fit-batch --minutes 3": "name what to tune: gputui tune --preset NAME, or --resume for the latest search",
    "tune --preset quickstart --rates 1e-5:1": "--rates and --ramp-steps go with --learning-rate-test",
    "tune --preset quickstart --ramp-steps 9": "--rates and --ramp-steps go with --learning-rate-test",
    "tune --preset quickstart --dry-run -o a.yaml":
        "--dry-run only predicts the memory: there is nothing to save with -o",
    "tune --learning-rate-test": "name what to test: gputui tune --preset NAME --learning-rate-test",
    **{
        f"tune --preset quickstart --learning-rate-test {words} {value}".strip():
            f"{words} does not go with --learning-rate-test"
        for words, value in (("--largest-batch", "4"), ("--seconds", "2"), ("--dry-run", ""), ("--resume", ""),
                             ("--leave", "input.shuffle"), ("--allow-worse-loss", ""), ("--wide", ""))
    },
    **{
        f"tune --preset quickstart --learning-rate-test --rates {words}":
            f"--rates takes two rates such as 1e-6:10, not {words!r}"
        for words in ("1e-6", "1e-6:", "a:1", "1:2:3")
    },
    **{f"proof {words}": "name a proof; gputui proof lists them" for words in ("--markdown", "-o a.yaml", "--stop")},
    "proof rm --json a": "rm goes only with --yes",
    "proof rm --stop a": "rm goes only with --yes",
    "proof rm -o a.yaml a": "rm goes only with --yes",
    "proof a --yes": "--yes goes only with rm",
    "proof a b": "show one proof at a time; rm takes several",
    **{
        f"proof a {words}": "use only one of --json, --markdown, -o and --stop"
        for words in ("--json -o a", "--json --stop", "--stop -o a")
    },
    "prepare --preset quickstart -o ready --size 224":
        "Invalid value for '--size': '224' is not HEIGHTxWIDTH, such as 224x224\n"
        "gputui prepare --help shows what there is",
    "prepare --preset quickstart -o ready --size 0x24":
        "Invalid value for '--size': '0x24' is not HEIGHTxWIDTH, such as 224x224\n"
        "gputui prepare --help shows what there is",
    "prepare --preset quickstart -o ready --size 10000x24":
        "Invalid value for '--size': '10000x24' is not HEIGHTxWIDTH, such as 224x224\n"
        "gputui prepare --help shows what there is",
    # this machine
    "doctor --python=": "--python needs the path of a Python, or of the folder of an environment that has one",
    "lease x true": "'x' is no number of GPUs; write 1, 2@24GB or 1@A100",
    "lease 0 true": "'0' is no number of GPUs; write 1, 2@24GB or 1@A100",
    "lease 1 no-such-program": "there is no program no-such-program",
    "lease 1": "name the program: gputui lease 1 -- python train.py",
    "lease 1 --": "name the program: gputui lease 1 -- python train.py",
    "serve --port 1023": "Invalid value for '--port': 1023 is not in the range 1024<=x<=65535.\n"
                         "gputui serve --help shows what there is",
    "runns": "there is no command or preset 'runns'; did you mean the command runs?",
    "qqqqqq": "there is no command or preset 'qqqqqq'; gputui --help lists the commands, and gputui presets the "
              "presets",
    "train": "there is no command 'train': gputui --preset NAME trains a preset; gputui alone opens the form",
    "fit quickstart other":
        "there is no command 'fit': gputui --preset quickstart trains a preset; gputui alone opens the form",
    "train quickstart":
        "there is no command 'train': gputui --preset quickstart trains a preset; gputui alone opens the form",
    "train qqqqqq": "there is no command 'train': gputui --preset NAME trains a preset; gputui alone opens the form",
    "mine.py": 'mine.py: Python code: write workload: {entry: "mine.py:build"} into a preset.yaml next to it; gputui '
               "guide says what build returns",
    "slow": "there is no command or preset 'slow', but there is a file: gputui slow.yml",
    "dir": "there is no command or preset 'dir'; gputui --help lists the commands, and gputui presets the presets",
    "quickstat": "there is no command or preset 'quickstat'; did you mean the preset quickstart?",
    "presetss": "there is no command or preset 'presetss'; did you mean the command presets?",
    "run:nobody": "'run:nobody': there is no such run; gputui runs lists them",
}  # fmt: skip


def test_what_does_not_go_together_is_refused_with_what_to_give(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    (tmp_path / "mine.py").touch()
    (tmp_path / "slow.yml").write_text("train: {epochs: 2}\n")
    (tmp_path / "dir.yml").mkdir()
    before = sorted(home.rglob("*"))
    with all_hold() as cases:
        for words, message in REFUSED.items():
            with cases.case(words):
                capsys.readouterr()
                code = command_line.run([run.id if word == "RUN" else word for word in words.split()])
                out, err = capsys.readouterr()
                said = err.removesuffix("\n").replace(run.id, "RUN" if " RUN" in message else "ID")
                assert (code, out, said) == (2, "", message)
    assert sorted(home.rglob("*")) == before
    assert list(tmp_path.glob("*.yaml")) == []


def test_a_python_that_is_asked_what_it_has_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["presets", "show", "quickstart"]) == 0
    capsys.readouterr()
    interpreter.notice("/usr/bin/python3")
    assert capsys.readouterr() == ("", "asking /usr/bin/python3 what is installed for it ...\n")


# ---- what reaches the commands ----------------------------------------------------------------

STARTED = {  # the functions that carry out the commands, by their module
    "train": ("run_preset", "resume_run"),
    "queue": ("add_preset", "add_resumed", "show_queue", "change", "pause_or_start", "service"),
    "runs": ("show_runs", "remove_runs", "stop_runs", "note", "tag"),
    "logs": ("show_log",),
    "compare": ("show_comparison", "pin_baseline", "unpin_baseline"),
    "history": ("show_history",),
    "follow": ("follow_run",),
    "proof": ("measure_change", "show_proofs", "show_proof", "remove_proofs"),
    "diagnose": ("diagnose",),
    "prepare": ("prepare",),
    "presets": ("list_presets", "show_preset", "check_presets", "show_schema", "export_preset", "begin"),
    "options": ("show_options",),
    "doctor": ("show_doctor",),
    "gpus": ("show_gpus", "run_on_leased"),
    "serve": ("serve",),
}
GIVEN = """\
--preset quickstart
--preset quickstart --set epochs=3 --set xla=true --json
--preset quickstart --detach
--preset quickstart --dry-run
--preset quickstart --resume-if-any --code copy
--preset quickstart --wait
--preset quickstart --anyway
--preset quickstart --queue --set epochs=3
--preset quickstart --queue --after r1
resume r1
resume --latest --json
resume r1 --detach
resume r1 --code new
resume r1 --wait
resume r1 --queue --after r2 --code copy
resume --latest --queue
runs
runs --json --tag a --tag b --state done --state oom --last 3
runs rm r1 r2
runs rm --latest --yes
logs
logs r1 -f -n 0
stop r1 r2
queue
queue --json
queue top r1 r2
queue up r1
queue down r1
queue hold r1
queue release r1
queue rm r1
queue pause
queue start
queue service
queue service --install
queue service --remove
compare r1 r2
compare r1 r2 --json --baseline r3
compare r1 r2 --markdown
compare r1 r2 --csv
compare --pin r1
compare --unpin
history
history r1 --jsonl -o a.jsonl
history r1 --csv
history r1 --tensorboard
follow
follow r1 --to mlflow --to wandb --detach
note r1
note r1 some words
tag r1 a b
tag r1 -d a
diagnose r1 --json
diagnose --preset quickstart --set xla=true --apply --minutes 3 --repeats 4 --seconds 2 -o a.yaml --wait --anyway
diagnose --preset quickstart --profile --queue --after r1
ab --preset quickstart --set xla=true
ab --preset quickstart --set xla=true --repeats 4 --seconds 2 --json --wait --anyway
ab --preset quickstart --set xla=true --queue --after r1
proof
proof --json
proof p1
proof p1 --json
proof p1 --markdown
proof p1 -o a.yaml
proof p1 --stop
proof rm p1 p2 --yes
prepare --preset quickstart -o ready
prepare --preset quickstart --set epochs=2 -o ready --size 20x30 --dtype float16 --format npz --shards 3 --workers 2
prepare --preset quickstart -o ready --limit 9 --estimate --json
presets
presets list
presets show quickstart
presets check a.yaml b.yaml
presets schema
options
options batch size --json
init
init there --example lora
export --preset quickstart --set xla=true -o a.py
doctor
doctor --json --deep --python /p
gpus
gpus --json
lease 2@24GB -- python train.py -x
lease --wait 1 true
serve
serve --port 1024"""


def recorder(name: str, function: Callable[..., Any], calls: list[str], code: int = 7) -> Callable[..., Any]:
    """A function that takes the same arguments, and only writes down those that are given and say something."""
    signature = inspect.signature(function)

    def called(*given: Any, **named: Any) -> int:
        bound = signature.bind(*given, **named).arguments
        words = (
            f"{key}={value!r}" for key, value in bound.items() if value not in (None, (), []) and value is not False
        )
        calls.append(f"{name}({', '.join(words)})")
        return code

    return called


def test_what_is_given_reaches_the_command_and_its_exit_code_is_returned(
    home: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    calls: list[str] = []
    for part, names in STARTED.items():
        module = importlib.import_module(f"gputui.tui.commands.{part}")
        for name in names:
            monkeypatch.setattr(module, name, recorder(f"{part}.{name}", getattr(module, name), calls))
    lines = []
    for words in GIVEN.splitlines():
        calls.clear()
        code = command_line.run(words.split())
        lines += [words, *(f"    {call}, exit code {code}" for call in calls)]
    assert "\n".join(lines) == snapshot


MEASURED = """\
ab --preset quickstart --set xla=true --repeats 4 --seconds 2
diagnose --preset quickstart
diagnose --preset quickstart --repeats 4 --seconds 2 --profile --set epochs=3
diagnose --preset quickstart --apply
diagnose --preset quickstart --apply --repeats 4 --minutes 3 -o a.yaml --json --set epochs=9
diagnose --preset quickstart --queue --after r1
diagnose 20260921-100000-cnn --apply
diagnose latest --apply --repeats 4 --seconds 2 --minutes 3 --wait -o a.yaml
tune --preset quickstart
tune --preset quickstart --set epochs=9 --repeats 4 --seconds 2 --only input --only xla --leave input.shuffle --wait
tune --preset quickstart --memory-gb 1.5 --largest-batch 64 --learning-rate sqrt --warmup-steps 5 --allow-worse-loss
tune --preset quickstart --precision float32 --dry-run --anyway --json
tune --preset quickstart --learning-rate-test
tune --preset quickstart --learning-rate-test --rates 1e-5:1 --ramp-steps 50 --repeats 4 --set clip_norm=9 -o a.yaml
fit-batch --preset quickstart --set epochs=9 --minutes 2 --queue --after r1
sweep --preset quickstart --over epochs=1,2
sweep --preset quickstart --over epochs=1,2 --metric loss --seeds 2 --minutes 5 --proof-seeds 3 --finalists 3
sweep --preset quickstart --over epochs=1..9 --sampler random --trials 7 --parallel 2 --json -o a.yaml
sweep --preset quickstart --set clip_norm=9 --over epochs=1,9 --halving 2 --markdown
scaling --preset quickstart --set logical_devices=4 --set memory_growth=off
scaling --preset quickstart --set logical_devices=4 --replicas 1,2 --keep global --repeats 4 --seconds 2 --minutes 3
scaling --preset quickstart --copies 2,3 --json --wait
scaling --preset quickstart --copies 2 --markdown --anyway"""


def test_a_measurement_is_requested_with_what_is_given(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(this_machine, "read", lambda: Machine((), "no NVIDIA driver", 12, 2**34))
    recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=13)
    lines: list[str] = []
    unsaid, plain = ("preset", "folder", "seed", "source"), presets.resolve("quickstart").changed()

    def run_proof(asked: Request, **following: Any) -> int:
        fields = {name: value for name, value in asdict(asked).items() if name not in unsaid and value}
        fields["set"] = {name: new for name, new in asked.baseline().changed().items() if plain.get(name) != new}
        following["trains_on"] = bool(following.get("trains_on"))
        lines.append(f"    {fields}\n    {dict(sorted((name, value) for name, value in following.items() if value))}")
        return 7

    monkeypatch.setattr(proof, "run_proof", run_proof)
    for words in MEASURED.splitlines():
        lines.append(words)
        assert command_line.run(words.split()) == 7, words
    assert "\n".join(lines) == snapshot
