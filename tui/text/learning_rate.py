"""The learning rate of a training whose replicas have scaled it, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...engine.files.values import mapping, number
from ...engine.units import amount


def scaled(started: Mapping[str, Any]) -> str:
    """`learning rate 0.004 (linear over 4 replicas)`, by a started event; nothing where it was not scaled."""
    how = mapping(mapping(started.get("options")).get("train")).get("learning_rate_scaling")
    highest, replicas = number(mapping(started.get("actual")).get("learning_rate")), number(started.get("replicas"))
    applies = "train.learning_rate_scaling" not in mapping(started.get("inapplicable"))
    if how not in ("linear", "sqrt") or highest is None or (replicas or 1) < 2 or not applies:
        return ""
    return f"learning rate {amount(highest)} ({how} over {replicas:.0f} replicas)"
