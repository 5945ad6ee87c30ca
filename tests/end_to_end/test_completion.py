"""What a shell proposes for each word of a command line."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from gputui.engine import presets, runs
from gputui.engine.files import run_numbers
from gputui.engine.options import OPTIONS
from gputui.engine.queue import entries
from gputui.engine.runs import Run, titles
from gputui.tui.cli.command import cli
from gputui.tui.cli.command import run as cli_run
from gputui.tui.cli.completion import MOST, Bash

from tests.support.queued import no_runner, waiting
from tests.support.recorded_proof import write_proof

SHIPPED = sorted(path.stem for path in presets.SHIPPED.glob("*.yaml"))


def proposed(*words: str) -> list[str]:
    """The words that are proposed for the last one."""
    return [item.value for item in ShellComplete(cli, {}, "gputui", "_X").get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def three(home: Path) -> list[Run]:
    """Runs of three presets, the newest last; the last two have short names."""
    made = []
    for number, name in enumerate(("cnn", "vit", "cnn")):
        run = Run(home / "runs" / f"2026092{number}-100000-{name}")
        run.path.mkdir(parents=True)
        (run.path / "preset.yaml").write_text("schema_version: 1\n")
        run.file(titles.FILE).write_text(titles.record(name, "/x.yaml", {"train.epochs": (2, 10 + number)}))
        made.append(run)
    (home / "runs" / "no-id").mkdir()
    (home / "runs" / "r.txt").write_text("")
    return made


RUN_COMMANDS = (
    ("logs",), ("watch",), ("stop",), ("resume",), ("history",), ("follow",), ("note",), ("tag",), ("diagnose",),
    ("compare",), ("compare", "--baseline"), ("compare", "--pin"), ("ab", "--after"), ("--after",), ("tune", "--after"),
    ("resume", "--after"),
)  # fmt: skip


def test_runs_are_proposed_newest_first_by_their_beginning_else_by_a_part(three: list[Run]) -> None:
    ids = [run.id for run in reversed(three)]
    for words in RUN_COMMANDS:
        assert proposed(*words, "") == ["latest", *ids], words
    assert proposed("logs", "20260921") == [ids[1]]
    assert proposed("logs", "cnn") == [ids[0], ids[2]]
    assert proposed("logs", "la") == ["latest"]
    assert proposed("logs", "nothing") == []
    assert proposed("runs", "rm", "") == ids
    assert proposed("runs", "rm", ids[1], "") == [ids[0], ids[2]]


def test_a_shell_that_shows_it_gets_the_title_of_each_run(three: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    for shell, is_told in (("zsh_complete", True), ("fish_complete", True), ("bash_complete", False)):
        monkeypatch.setenv("_GPUTUI_COMPLETE", shell)
        items = ShellComplete(cli, {}, "gputui", "_X").get_completions(["logs"], "")
        assert [item.help for item in items] == [None, *(
            runs.title(run) if is_told else None for run in reversed(three)
        )]  # fmt: skip
    assert runs.title(three[0]) == "cnn: epochs=10"


def test_short_names_come_before_the_ids_and_have_the_titles_of_their_runs(
    three: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest, middle, newest = three
    run_numbers.file_of(oldest.path).write_text(f"gone\n{middle.id}\n{newest.id}\n")
    ids = [run.id for run in reversed(three)]
    monkeypatch.setenv("_GPUTUI_COMPLETE", "zsh_complete")
    items = ShellComplete(cli, {}, "gputui", "_X").get_completions(["logs"], "")
    titles_of = {run.id: runs.title(run) for run in three} | {"r3": runs.title(newest), "r2": runs.title(middle)}
    assert [(item.value, item.help) for item in items] == [
        ("latest", None), *((name, titles_of[name]) for name in ("r3", "r2", *ids))
    ]  # fmt: skip
    assert proposed("runs", "rm", "r3", "r") == ["r2"]


def test_the_script_of_a_shell_leaves_no_blank_behind_the_key_of_an_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert cli_run(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert f"_GPUTUI_COMPLETE={shell}_complete" in script
        assert ("[[ $value == *= ]] && compopt -o nospace" in script) is (shell == "bash")


@pytest.mark.parametrize(
    ("line", "word", "replies"),
    [  # bash gives the last word after its last = or :
        ("gputui --preset quickstart --set policy=mix", "mix", ["mixed_float16", "mixed_bfloat16"]),
        ("gputui --preset 'my fast.yaml' --set epochs=3 --set xla=", "", ["auto", "true", "false"]),
        ("gputui --set compile.xla=t", "compile.xla=t", ["compile.xla=true"]),  # = divides no words by COMP_WORDBREAKS
        ("gputui --set ba", "ba", ["batch_size="]), ("gputui presets ", "", ["check", "list", "schema", "show"]),
    ],
)  # fmt: skip
def test_bash_gets_what_follows_the_equals_sign(
    line: str, word: str, replies: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli_run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    monkeypatch.setenv("COMP_WORDS", line)
    proposals = Bash(cli, {}, "gputui", "_X").complete()
    answer = f"compopt() {{ :; }}; answer() {{ printf '%s' {shlex.quote(proposals)}; }}"
    asks = script.replace("$(env ", "$(answer ")  # in place of gputui's own process
    call = f'COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}; _gputui_completion gputui {shlex.quote(word)} ""'
    bash = f'{answer}\n{asks}\n{call}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    assert subprocess.run(["bash", "-c", bash], check=True, capture_output=True, text=True).stdout.split() == replies


def test_no_more_than_200_runs_are_proposed(home: Path) -> None:
    for number in range(205):
        (home / "runs" / f"20260101-{number:06}-a").mkdir(parents=True)
    found = proposed("logs", "2026")
    assert (len(found), found[0], MOST) == (200, "20260101-000204-a", 200)


def test_presets_are_proposed_by_name_and_by_their_files_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.yaml", "a.yml", "c.txt"):
        (tmp_path / name).write_text("train: {epochs: 2}\n")
    presets.user_folder().mkdir(parents=True)
    (presets.user_folder() / "mine.yaml").write_text("train: {epochs: 2}\n")
    everything = sorted([*SHIPPED, "mine", "a.yml", "b.yaml"])
    for words in (("--preset",), ("presets", "show"), ("presets", "check"), ("ab", "--preset"), ("tune", "--preset"),
                  ("export", "--preset"), ("diagnose", "--preset"), ("sweep", "--preset"), ("prepare", "--preset"),
                  ("scaling", "--preset"), ("fit-batch", "--preset")):  # fmt: skip
        assert sorted(proposed(*words, "")) == everything, words
    assert sorted(proposed("")) == sorted([*cli.commands, *everything])
    assert proposed("quick") == ["quickstart"]
    assert "--preset" in proposed("--pr")
    assert not set(proposed("--")) & set(everything)
    for begun in ("./", "~/", "/x", "a/b", ".", "~", "~a"):
        (item,) = ShellComplete(cli, {}, "gputui", "_X").get_completions(["--preset"], begun)
        assert (item.value, item.type) == (begun, "file"), "the shell completes files"
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert proposed("--preset", "quick") == ["quickstart"]


def test_nothing_is_said_while_a_shell_proposes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart.yaml").write_text("train: {epochs: 2}\n")
    for begun in (["--preset", "quickstart"], ["quickstart"], ["qickstart"], ["ab", "--preset", "quickstart"]):
        assert proposed(*begun, "--set", "epoc") == ["epochs="], begun
    assert capsys.readouterr() == ("", "")
    assert cli_run(["--preset", "quickstart", "--code", "new"]) == 2
    assert capsys.readouterr().err.startswith("quickstart is the shipped preset; the file in this folder is another")


def test_queued_runs_proofs_and_tags_are_proposed(
    home: Path, three: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    for words in (("queue", "top"), ("proof",), ("runs", "--tag")):
        assert proposed(*words, "x") == []
    queued = [waiting(name) for name in ("one", "two")]
    for run in queued:
        entries.add(run)
    (home / "queue" / ".hidden.json").write_text("")
    for verb in ("top", "up", "down", "hold", "release", "rm"):
        assert proposed("queue", verb, "") == sorted(run.id for run in queued)
        assert proposed("queue", verb, queued[0].id, "") == [queued[1].id]
    for name in ("20260921-1", "20260921-2"):
        write_proof(home, name)
    assert proposed("proof", "") == ["latest", "20260921-2", "20260921-1"]
    titles.retag(three[0], ["slow", "best"])
    titles.retag(three[1], ["best", "wide"])
    for words in (("runs", "--tag"), ("tag", three[0].id)):
        assert proposed(*words, "") == ["best", "slow", "wide"]
        assert proposed(*words, "o") == ["slow"]


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        ("input.batch", ["input.batch_size="]),
        ("batch_s", ["batch_size="]),
        ("atch_s", ["batch_size="]),
        ("xla=", ["xla=auto", "xla=true", "xla=false"]),
        ("compile.xla=t", ["compile.xla=true"]),
        ("deterministic=", ["deterministic=true", "deterministic=false"]),
        ("memory_growth=", ["memory_growth=auto", "memory_growth=true", "memory_growth=false"]),
        ("epochs=", []),
        ("nothing=", []),
        ("nothing", []),
    ],
)
def test_settings_are_proposed_with_their_words(begun: str, words: list[str]) -> None:
    assert sorted(proposed("--set", begun)) == sorted(words)
    assert sorted(proposed("ab", "--set", begun)) == sorted(words)


def test_options_are_proposed_with_their_group_if_there_is_a_point() -> None:
    assert proposed("options", "") == [info.name for info in OPTIONS]
    assert proposed("options", "input.") == [info.key for info in OPTIONS if info.group == "input"]
    assert proposed("options", "batch_size", "epo") == ["epochs"]
