"""What an exported folder has in it: the data up to a size, the code that is imported, a README and the versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.doors.engine import EntryFault, Exported, Form, Preset, export, presets, stateful_draws


def preset(*settings: str, name: str = "my  night!", description: str = "") -> Preset:
    return Preset(name, presets.defaults(settings).options, description)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


ALWAYS = {"README.md", "requirements.txt", "plain.py", "my-night.yaml"}


def test_data_is_copied_up_to_64_mib(tmp_path: Path) -> None:
    images = tmp_path / "images"
    for name in ("a/1.png", "b/2.png", "b/inner/3.png"):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        (images / name).write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    most = 64 * 1024**2
    for size, name in ((most, "most.npz"), (most + 1, "more.npz")):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(size)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.rec").write_text(folder)
        (tmp_path / folder / f"{folder}.rec").write_text(folder)
    for number, (data, copied, missing, source) in enumerate((
        ("digits", {"data/digits.npz"}, None, "digits"),
        ("synthetic", set(), None, "synthetic"),
        (f"images:{images}/", {"data/images/a/1.png", "data/images/b/2.png", "data/images/b/inner/3.png"}, None,
         "images:HERE/data/images"),
        (f"images:{tmp_path}/empty", set(), (f"{tmp_path}/empty", "data/empty"), "images:HERE/data/empty"),
        (f"npz:{tmp_path}/most.npz", {"data/most.npz"}, None, "npz:HERE/data/most.npz"),
        (f"npz:{tmp_path}/more.npz", set(), (f"{tmp_path}/more.npz", "data/more.npz"), "npz:HERE/data/more.npz"),
        (f"tfrecord:{tmp_path}/one/*.rec", {"data/same.rec", "data/one.rec"}, None, "tfrecord:HERE/data/*.rec"),
        (f"tfrecord:{tmp_path}/*/*.rec", {"data/same.rec", "data/one.rec", "data/two.rec"},
         (f"{tmp_path}/*/*.rec", "data/*.rec"), "tfrecord:HERE/data/*.rec"),
        (f"tfrecord:{tmp_path}/none*.rec", set(), (f"{tmp_path}/none*.rec", "data/none*.rec"),
         "tfrecord:HERE/data/none*.rec"),
    )):  # fmt: skip
        target = tmp_path / f"out-{number}"
        assert export(preset(f"data={data}"), target) == Exported(target, missing), data
        assert files(target) == ALWAYS | copied, data
        read = presets.resolve(str(target / "my-night.yaml")).options
        assert read.workload.data.replace(str(target), "HERE") == source
        assert ("too large to be copied" in (target / "README.md").read_text()) == (missing is not None)


def test_nothing_is_left_of_an_export_that_fails_and_the_folder_has_the_modes_of_others(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import README\n\n\ndef build(context): ...\n")
    (tmp_path / "README.py").write_text("")
    given = preset(f"entry={tmp_path}/train.py:build", f"workload.folder={tmp_path}")
    before = files(tmp_path)
    (tmp_path / "train.py").write_text("import plain\n\n\ndef build(context): ...\n")
    (tmp_path / "plain.py").write_text("")
    with pytest.raises(EntryFault) as fault:
        export(given, tmp_path / "out")
    assert (fault.value.message, fault.value.change) == (
        f"{tmp_path}/plain.py cannot be exported", "rename it: the exported folder has a plain.py of its own",
    )  # fmt: skip
    assert files(tmp_path) == before | {"plain.py"}
    (tmp_path / "train.py").write_text("def build(:\n")
    with pytest.raises(EntryFault, match=r"train\.py is not valid Python: ") as fault:
        export(given, tmp_path / "out")
    assert fault.value.change == "correct it"
    mask = os.umask(0o027)
    try:
        made = export(preset(), tmp_path / "made").folder
    finally:
        os.umask(mask)
    assert made.stat().st_mode & 0o777 == 0o750
    assert os.umask(mask) == mask


def test_the_folder_has_no_place_and_no_secret_of_this_machine(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(preset("cache=/tmp/kept", "python=/usr/bin/python3", "url=https://x/SECRET", "data=synthetic"), target)
    read = presets.resolve(str(target / "my-night.yaml")).options
    assert (read.input.cache, read.run.python, read.notify.url) == (f"{target}/cache", None, None)
    assert not [name for name in files(target) if "SECRET" in (target / name).read_text()]
    export(preset("cache=memory"), tmp_path / "memory")
    assert presets.resolve(str(tmp_path / "memory" / "my-night.yaml")).options.input.cache == "memory"


MODULES = {
    "train.py": "import a.b\nfrom c import d, e\nfrom . import f\nimport json, numpy\nfrom g.h import *\n",
    "a/__init__.py": "", "a/x.py": "",
    "a/b.py": "from .x import y\nfrom .. import top\nfrom . import plain\nfrom .n1.n2 import z\n",
    "a/n1/n2/z.py": "", "a/unused.py": "", "a/plain.py": "",
    "c.py": "import train\n", "f.py": "import yaml as other\n", "g/h.py": "from h2 import k\n", "g/h2.py": "",
    "top.py": "", "d.py": "", "x.py": "",
}  # fmt: skip


def test_the_code_that_is_imported_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(text)
    with (tmp_path / "code" / "train.py").open("a") as stream:
        stream.write("def build(context): ...\n")
    target = tmp_path / "out"
    export(preset(f"entry={tmp_path}/code/train.py:build", f"workload.folder={tmp_path}/code"), target, Form("arrays"))
    assert files(target) - ALWAYS == {
        "train.py", "a/__init__.py", "a/b.py", "a/x.py", "a/plain.py", "a/n1/n2/z.py", "c.py", "f.py", "g/h.py",
        "g/h2.py", "top.py",
    }  # fmt: skip
    needed = (target / "requirements.txt").read_text().splitlines()
    assert not any("Your code also imports" in line and "numpy" not in line for line in needed), needed
    read = presets.resolve(str(target / "my-night.yaml")).options.workload
    assert (read.entry, read.folder) == (f"{target}/train.py:build", str(target))
    export(preset("entry=a.b:build", f"workload.folder={tmp_path}/code"), tmp_path / "module", Form("arrays"))
    assert presets.resolve(str(tmp_path / "module" / "my-night.yaml")).options.workload.entry == "a.b:build"
    below = preset(f"entry={tmp_path}/code/g/h.py:build", f"workload.folder={tmp_path}/code")
    export(below, tmp_path / "below", Form("arrays"))
    assert presets.resolve(str(tmp_path / "below" / "my-night.yaml")).options.workload.entry == (
        f"{tmp_path}/below/g/h.py:build"
    )
    outside = preset(f"entry={tmp_path}/code/a/x.py:build", f"workload.folder={tmp_path}/code/g")
    export(outside, tmp_path / "outside", Form("arrays"))
    assert files(tmp_path / "outside") - ALWAYS == {"x.py"}, "its own folder is the root"


@pytest.mark.parametrize(
    ("code", "draws"),
    [
        ("def f():\n    tf.random.normal([1])\n", ["tf.random.normal in f (a.py:2)"]),
        ("tf.random.normal([1])\n", []),
        ("def f():\n    tf.random.normal([1], seed=1)\n", []),
        ("def f():\n    def g():\n        tensorflow.image.random_crop(x)\n",
         ["tensorflow.image.random_crop in g (a.py:3)"]),
        ("def f():\n    tf.random.stateless_normal([1])\n    np.random.normal(1)\n    normal(1)\n", []),
        ("def f(:\n", []),
    ],
)  # fmt: skip
def test_draws_without_a_seed_of_their_own_are_named(code: str, draws: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(code)
    assert stateful_draws(tmp_path / "a.py") == draws
    assert stateful_draws(tmp_path / "gone.py") == []
