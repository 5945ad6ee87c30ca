"""What the form shows first: made without YAML and pydantic, and the same as with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from gputui.engine import presets
from gputui.engine.options import OPTIONS
from gputui.engine.presets import PresetError, resolving
from gputui.tui.app import GputuiApp
from gputui.tui.base.settings import Settings
from gputui.tui.form.form_state import to_text

LATER = ("pydantic", "yaml", "ruamel", "gputui.engine.runs", "gputui.engine.checks")


# Ends at the first paint: what was imported until then, in any thread.
PAINT = """
import os, sys
from gputui.tui.app import GputuiApp
from gputui.tui.base.settings import Settings

class FirstPaint(GputuiApp):
    def _display(self, screen, renderable):
        print(*sys.modules, "painted" if self.form.options.rows["input.batch_size"].size else "",
              file=sys.__stdout__, flush=True)
        os._exit(0)

FirstPaint().run(headless=True, size=(120, 40))
"""


def test_nothing_is_imported_for_the_first_paint_that_it_can_do_without(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PAINT], capture_output=True, text=True, check=True,
        env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)},
    )  # fmt: skip
    assert set(LATER) & set(done.stdout.split()) == set()
    assert done.stdout.endswith(" painted\n")  # it was the form


@pytest.mark.parametrize("chosen", ["", "gputui-light"])
def test_the_styles_are_made_once_for_the_first_paint(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    """With gputui's own theme, or that of the settings: after a change Textual would make them again."""
    settings = Settings()
    settings.change("theme", chosen)
    settings.flush()
    monkeypatch.setenv("COLORTERM", "truecolor")
    made: list[str] = []
    variables = GputuiApp.get_css_variables

    def noted(app: GputuiApp) -> dict[str, str]:
        made.append(app.theme)
        return variables(app)

    monkeypatch.setattr(GputuiApp, "get_css_variables", noted)
    GputuiApp()
    assert made == [chosen or "gputui"]


def test_the_first_preset_is_what_its_file_says() -> None:
    assert json.loads(resolving.FIRST_AS_JSON.read_text()) == resolving.first_as_json(), "make docs writes it"
    assert resolving.first() == presets.resolve(str(resolving.FIRST))


def test_a_first_preset_whose_file_was_changed_is_read_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "quickstart.yaml"
    shutil.copy(resolving.FIRST, changed)
    changed.write_text(changed.read_text().replace("batch_size: 32", "batch_size: 48"))
    monkeypatch.setattr(resolving, "FIRST", changed)
    assert resolving.first().options.input.batch_size == 48
    changed.write_text("input: {batch_size: many}")
    with pytest.raises(PresetError, match="batch_size"):
        resolving.first()


def test_values_are_written_as_yaml_writes_them() -> None:
    for value in [info.default for info in OPTIONS] + [1e-7, 2.5e20, -3, [], [1.5, 2], ["a", 1], [True], {"a": 1}]:
        if value is not None and not isinstance(value, str):
            written = yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")
            assert to_text(value) == written, value
