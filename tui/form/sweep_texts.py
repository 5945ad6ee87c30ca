"""What a sweep is to do as texts and choices, as a dialog edits them. They are read as on the command line."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from ...engine.files import located_yaml
from ...engine.presets import Preset
from ...engine.proof.request import ProofError
from ...engine.sweep import preset_block, swept_values
from ...engine.trials import SAMPLERS
from ...engine.trials.change_texts import value as text_of
from ...engine.trials.sweep_record import SweepSettings
from .search_limits import WrongLimit

ROWS = 3  # for swept options, and one more than there are at first
AROUND = 3.0  # the first proposal: this factor below and above the learning rate
METRIC = "val_loss"


@dataclass
class SweepTexts:
    """The texts of the dialog's fields for a sweep of the preset `of`. `over` are texts as --over takes them, and
    `others` the entries of the block `sweep:` by their names. An empty text means the default."""

    of: Preset
    over: list[str]
    others: dict[str, str]

    @classmethod
    def first(cls, opened: Preset) -> SweepTexts:
        """Return the texts of a preset's dialog: its block `sweep:`, or a sweep of its learning rate. Raises
        ProofError."""
        given = preset_block.of_block(opened.sweep, f"{opened.name}: sweep.")
        defaults = {each.name: each.default for each in fields(SweepSettings) if each.default is not MISSING}
        values: dict[str, Any] = {"metric": METRIC} | defaults | {"parallel": None} | given
        others = {key: values.get(parameter) for key, (parameter, *_) in preset_block.ENTRIES.items()}
        others["minutes"] = f"{values['minutes']:g}"
        over = list(given.get(preset_block.OVER) or [_around(opened.options.train.learning_rate)])
        over += [""] * max(1, ROWS - len(over))
        return cls(opened, over, {key: "" if of is None else text_of(of) for key, of in others.items()})

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `sweep_request.of_opened`. Raises WrongLimit for the first invalid text."""
        made: dict[str, Any] = {"metric": METRIC, "halve_from": None}
        for key, text in self.others.items():
            if text.strip():
                try:
                    made |= preset_block.of_block({key: located_yaml.scalar(text.strip())})
                except ProofError as fault:
                    raise WrongLimit(key, str(fault)) from None
        made[preset_block.OVER] = [text.strip() for text in self.over if text.strip()]
        for place, text in enumerate(self.over):
            if text.strip():
                try:
                    swept_values.axis(text.strip(), made.get("sampler", SAMPLERS[0]) == SAMPLERS[0])
                except ProofError as fault:
                    raise WrongLimit(f"{preset_block.OVER}{place}", str(fault)) from None
        return made


def _around(rate: float) -> str:
    return "learning_rate=" + f"{rate / AROUND:.2g},{text_of(rate)},{rate * AROUND:.2g}"
