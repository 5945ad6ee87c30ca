"""Which GPUs a watched script trains on, why none of them trains, and the preset that its fit has."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf
import yaml
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Fault, Gpu, Machine
from gputui.engine.trainer.monitor import description
from gputui.engine.trainer.setup.devices import Devices

BOX = Machine(tuple(Gpu(index, f"GPU-{index}", "A GPU", (9, 0), 80 * 1024**3) for index in range(3)), "", 1, 1)
LOOK = description.LOOK
FAULT = Fault("error", "driver", "the driver is not loaded", "load it")


class Warnings:
    """Stands for the report of a run."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def warn(self, kind: str, message: str, hint: str = "", option: str = "") -> None:
        self.told.append((kind, message, hint, option))


@pytest.mark.parametrize(
    ("machine", "seen", "told"),
    [
        (Machine((), "none", 1, 1), 0, None),
        (replace(BOX, visible_devices=""), 0, None),
        (BOX, 0, ("the driver shows 3 GPU(s), and TensorFlow none", LOOK)),
        (
            BOX, 2,
            ("TensorFlow sees 2 GPU(s), but their chips are too old: it has no code for them",
             "gputui doctor says which chips it supports"),
        ),
        (Machine((), "not loaded", 1, 1, fault=FAULT), 0, ("the driver is not loaded", "load it")),
        (replace(BOX, visible_devices="GPU-9"), 0, ("CUDA shows none of this machine's GPUs", LOOK)),
    ],
)  # fmt: skip
def test_a_script_that_trains_on_the_cpu_is_told_why(
    machine: Machine, seen: int, told: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = keras.Sequential()
    monkeypatch.setattr(this_machine, "read", lambda: machine)
    physical, logical = ["x"] * seen, [SimpleNamespace(name="/device:CPU:0")]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: physical)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: physical)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: logical if kind == "CPU" else [])
    present, fault = description.devices(model)
    assert present == Devices("CPU", ("/device:CPU:0",), shown=len(machine.shown), seen=seen)
    assert ((fault.what, fault.remedy) if fault else None) == told
    report: Any = Warnings()
    description.warn_of_gpus(report, replace(present, uncertain="perhaps"), fault)
    uncertain = ("gpus_uncertain", "perhaps", "GPU readings of this run may be of another GPU", "")
    assert report.told == [*([("no_gpu", f"{told[0]}: the CPU trains", told[1], "")] if told else []), uncertain]
    if seen:
        monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])
        assert description.devices(model)[1] is None, "the script has hidden them"


@pytest.mark.parametrize(
    ("replicas", "places", "names"),
    [
        (1, ["/job:localhost/replica:0/task:0/device:GPU:1"], ("/device:GPU:1",)),
        (1, [], ("/device:GPU:0",)),
        (2, ["/device:GPU:2", "/device:GPU:0"], ("/device:GPU:0", "/device:GPU:2")),
        (2, ["/device:CPU:0"], ("/device:GPU:0",)),
    ],
)
def test_the_gpus_of_a_script_are_those_of_its_strategy_or_of_its_variables(
    replicas: int, places: list[str], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = SimpleNamespace(
        num_replicas_in_sync=replicas, extended=SimpleNamespace(worker_devices=places if replicas > 1 else None)
    )
    variables = [SimpleNamespace(value=SimpleNamespace(device="/device:GPU:1"))]
    if replicas == 1:
        variables = [SimpleNamespace(value=SimpleNamespace(device=place)) for place in places]
    model: Any = SimpleNamespace(distribute_strategy=strategy, variables=variables)
    opened = [SimpleNamespace(name=f"/device:GPU:{number}") for number in range(3)]
    monkeypatch.setattr(this_machine, "read", lambda: BOX)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: opened)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: opened)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda _: {})
    present, fault = description.devices(model)
    assert (present.kind, present.names, fault) == ("GPU", names, None)
    assert (present.shown, present.seen) == (3, 3)
    assert tuple(each.device for each in present.gpus) == names


@pytest.mark.parametrize(
    ("params", "batch_size", "replicas", "epochs", "given"),
    [({}, None, 1, 1, {}), ({"epochs": 7}, 64, 2, 7, {"input": {"batch_size": 32}}),
     ({"epochs": 7}, 1, 2, 7, {"input": {"batch_size": 1}})],
)  # fmt: skip
def test_the_preset_of_a_script_has_what_keras_knows(
    params: dict[str, Any], batch_size: int | None, replicas: int, epochs: int, given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["/home/me/train.py"])
    strategy = SimpleNamespace(num_replicas_in_sync=replicas)
    model: Any = SimpleNamespace(jit_compile=True, steps_per_execution=5, distribute_strategy=strategy)
    assert yaml.safe_load(description.preset("mine", model, params, batch_size)) == {
        "schema_version": 1, "description": "mine: model.fit in train.py, looked at by Monitor",
        "precision": {"policy": "float32"}, "compile": {"xla": True, "steps_per_execution": 5},
        "train": {"epochs": epochs}, **given,
    }  # fmt: skip
