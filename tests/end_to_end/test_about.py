"""What gputui tells about itself: its options by any of their names, the guide, completion in a shell, first files."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.options import OPTIONS, by_key
from gputui.engine.options.synonyms import SYNONYMS
from gputui.engine.runs import titles
from gputui.tui import cli
from gputui.tui.form.option_search import search

from tests.support.cases import all_hold
from tests.support.front_door import COMMAND

ROOT = Path(__file__).parents[2]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert cli.run(words) == 0
    return capsys.readouterr().out


# ---- options ----------------------------------------------------------------------------------


def test_all_options_are_listed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = printed(capsys, "options").splitlines()
    assert head.split() == ["option", "default", "takes", "what", "it", "does", "helps"]
    assert [line.split()[0] for line in lines] == [info.key for info in OPTIONS]
    for info, line in zip(OPTIONS, lines, strict=True):
        assert info.about.help in line
        assert line.endswith(info.about.helps)
    told = [json.loads(line) for line in printed(capsys, "options", "--json").splitlines()]
    assert [one["key"] for one in told] == [info.key for info in OPTIONS]
    assert [one["default"] for one in told] == [info.default for info in OPTIONS]


def test_of_one_option_everything_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("input.batch_size", "batch_size", "bs"):
        out = printed(capsys, "options", *(["oom"] if words == "bs" else [words]))
        info = by_key(OPTIONS)["input.batch_size"]
        assert info.about.help in out
        assert info.accepts in out
    for part in ("samples", "64", info.about.helps, info.about.hurts, "calls", "Dataset.batch", "--set", "bs, batch"):
        assert part in printed(capsys, "options", "batch_size")
    for kind in ("central_storage", "parameter_server"):
        assert f"not taken  {kind}: " in printed(capsys, "options", "strategy.kind")
    assert "does nothing without a GPU" in printed(capsys, "options", "tf32")
    assert [json.loads(printed(capsys, "options", "lr", "--json"))["key"]] == ["train.learning_rate"]


def test_a_group_or_any_word_finds_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "options", "input").splitlines()[1:]
    assert [line.split()[0] for line in lines] == [info.key for info in OPTIONS if info.group == "input"]
    assert "train.clip_norm" in printed(capsys, "options", "clip", "gradient")
    assert cli.run(["options", "batch_sice"]) == 2
    assert "did you mean batch_size?" in capsys.readouterr().err
    assert cli.run(["options", "zzzz"]) == 2
    assert "gputui options lists them all" in capsys.readouterr().err


# What people write, and the option that they mean first.
MEANT = {
    "lr": "train.learning_rate", "amp": "precision.policy", "gpu": "device.visible", "gpus": "device.visible",
    "mixed_precision": "precision.policy", "mixed-precision": "precision.policy", "oom": "run.on_oom",
    "bs": "input.batch_size", "workers": "input.parallel_calls", "num_workers": "input.parallel_calls",
    "fp16": "precision.policy", "bf16": "precision.policy", "train.lr": "train.learning_rate",
    "jit_compile": "compile.xla", "optim": "train.optimizer", "ddp": "strategy.kind", "LR": "train.learning_rate",
    "num_epochs": "train.epochs", "ckpt": "run.checkpoint", "allow_growth": "device.memory_growth",
}  # fmt: skip


def test_other_names_lead_to_the_option_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with all_hold() as cases:
        for word, key in MEANT.items():
            with cases.case(word):
                _leads_to(key, word, tmp_path, capsys)


def _leads_to(key: str, word: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert key in printed(capsys, "options", word)
    assert search(word.rpartition(".")[2])[0].item.key == key
    assert cli.run(["--preset", "quickstart", "--set", f"{word}=1"]) == 2
    assert f"unknown option, did you mean {key}" in capsys.readouterr().err
    group, _, name = word.rpartition(".")
    for text in (f"{word}: 1\n", f"{group or 'train'}:\n  {name}: 1\n"):
        (folder / "mine.yaml").write_text(text)
        assert cli.run(["--preset", str(folder / "mine.yaml")]) == 2
        assert f", did you mean {key}" in capsys.readouterr().err


def test_every_other_name_leads_to_options_that_are_there_and_is_none_itself() -> None:
    known = by_key(OPTIONS)
    assert {key for keys in SYNONYMS.values() for key in keys} <= set(known)
    assert not set(SYNONYMS) & {info.name for info in OPTIONS}
    words = [word for info in OPTIONS for word in info.about.other_names]
    assert len(words) > 100
    assert sorted(words) == sorted(set(words)), "a word of several options is a line of options/synonyms.py"
    assert {word for word in words if len(SYNONYMS[word]) > 1} == set(), "it is a line of options/synonyms.py already"


# ---- completion -------------------------------------------------------------------------------

ASK = """
eval "$(gputui completion bash)"
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}; COMPREPLY=(); compopt() {{ local IFS=" "; echo "compopt $*"; }}
_gputui_completion gputui {word}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line, word = shlex.quote(" ".join(("gputui", *words))), shlex.quote(words[-1])
    path = f"{Path(COMMAND[0]).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ASK.format(line=line, word=word)], cwd=folder, env=os.environ | {"PATH": path},
        capture_output=True, text=True, check=True, timeout=180,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes_presets_runs_and_keys(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text("")
    run = runs.create("some", presets.resolve("quickstart").to_yaml())
    assert completed(tmp_path, "--preset", "qui") == ["quickstart", "quick.yaml"]
    assert completed(tmp_path, "watch", "") == ["latest", "r1", run.id]
    assert completed(tmp_path, "stop", run.id[:9]) == [run.id]
    assert completed(tmp_path, "stop", "some") == [run.id]
    titles.retag(run, ["best"])
    assert completed(tmp_path, "runs", "") == ["rm"]
    assert completed(tmp_path, "runs", "rm", "") == ["r1", run.id]
    assert completed(tmp_path, "runs", "--tag", "") == completed(tmp_path, "tag", run.id, "b") == ["best"]
    assert completed(tmp_path, "logs", "") == ["latest", "r1", run.id]
    assert completed(tmp_path, "--set", "batch") == ["compopt -o nospace", "batch_size="]
    assert completed(tmp_path, "options", "input.pre") == ["input.prefetch", "input.prefetch_to_device"]
    assert completed(
        tmp_path,
        "pro",
    )[:1] == ["proof"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"_GPUTUI_COMPLETE={shell}_complete" in printed(capsys, "completion", shell)
    assert f"gputui completion {shell}" in printed(capsys, "completion", "--help")


def test_completing_imports_nothing_heavy() -> None:
    program = (
        "import sys, click\nfrom gputui.tui import cli\nfrom gputui.tui.cli import completion as completing\n"
        "for ask in (completing.preset, completing.run, completing.proof): ask(None, None, '')\n"
        "print([name for name in ('pydantic', 'textual', 'rich', 'tensorflow', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- the first files, and what they point at --------------------------------------------------


def test_what_init_writes_and_says_holds_on_any_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = printed(capsys, "init")
    written = "".join(Path(name).read_text() for name in ("preset.yaml", "train.py"))
    for folder in (ROOT, tmp_path, Path(sys.prefix), Path.home()):
        assert str(folder) not in said + written
    assert "docs/" not in said + written
    for words in ("gputui guide", "gputui options"):
        assert words in said
        assert words in written
    assert cli.run(["presets", "check", "preset.yaml"]) == 0
    assert "def build(context)" in printed(capsys, "guide")
    for program in sorted((ROOT / "examples").glob("[!_]*.py")):
        name = program.stem.replace("_", "-")
        said = printed(capsys, "init", "--example", name)
        assert Path(program.name).read_text() == program.read_text()
        for path in (ROOT / "examples").glob(f"{name}*.yaml"):
            assert f"gputui --preset {path.name}" in said
            assert cli.run(["presets", "check", path.name]) == 0
