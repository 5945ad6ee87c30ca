"""Grain's data sets and torch's DataLoaders as data of a user's code: as in plain Keras, and resumed exactly."""

from __future__ import annotations

import shutil
import warnings
from typing import Any

import numpy as np
import pytest

from tests.support.cases import all_hold
from tests.support.own import Write
from tests.support.training import Training

pytest.importorskip("grain")

PROGRAM = """
import grain, keras, numpy as np

x = np.random.default_rng(0).normal(size=(95, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)

def with_targets(row):
    return row, row.sum(keepdims=True)

class Noise(grain.transforms.RandomMap):
    def random_map(self, row, rng):
        return row + 0.1 * rng.normal(size=4).astype("float32")

class Targets(grain.transforms.Map):
    def map(self, row):
        return with_targets(row)

def by_map():
    source = grain.MapDataset.source(x).seed(3).shuffle().random_map(Noise()).map(with_targets)
    return source.batch(10)

def by_iteration(processes=0):
    data = grain.MapDataset.source(x).shuffle(seed=3).to_iter_dataset().map(with_targets).batch(10)
    return data.mp_prefetch(grain.MultiprocessingOptions(num_workers=processes)) if processes else data

def loader():
    sampler = grain.samplers.IndexSampler(95, shuffle=True, seed=1, num_epochs=1)
    return grain.DataLoader(
        data_source=x, sampler=sampler, operations=[Targets(), grain.transforms.Batch(10)], worker_count=0
    )

def model():
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    made.compile("sgd", "mse")  # of unknown length, Keras lets Adam count one step too many at the end of each epoch
    return made

def build(context):
    return RETURNED
"""
TORCH = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

pairs = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))

class Noisy(Dataset):
    def __len__(self): return 95
    def __getitem__(self, i): return pairs[i][0] + 0.1 * torch.randn(4), pairs[i][1]

class Stream(IterableDataset):
    def __iter__(self): return (pairs[i] for i in torch.randperm(95).tolist())

class Global(Noisy):
    def __getitem__(self, i): return pairs[i][0] + np.random.normal(), pairs[i][1]

def build(context):
    torch.manual_seed(5)
    return RETURNED
"""
COMMON = ("epochs=3", "run.checkpoint=7", "run.keep=9")


def program(returned: str, of_torch: bool = False) -> str:
    return (PROGRAM + TORCH if of_torch else PROGRAM).replace("RETURNED", returned)


def losses_of_keras(source: str, data: str, seed: str) -> list[float]:
    """The losses of plain Keras with the same loader."""
    import keras

    names: dict[str, Any] = {"__name__": "plain"}
    keras.utils.set_random_seed(7)
    exec(source + f"\nmade, data = model(), None\n{seed}\ndata = {data}", names)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")  # Keras learns the length by that
        return list(names["made"].fit(names["data"], epochs=3, shuffle=False, verbose=0).history["loss"])


def resumed(own: Write, source: str, whole: Training, step: int) -> Training:
    again = own(source, *COMMON)
    shutil.copytree(whole.run.file("checkpoints"), again.run.file("checkpoints"))
    again.loop.run(step)
    return again


def check(own: Write, source: str, data: str, seed: str = "") -> None:
    """As plain Keras, and the same weights if it is resumed within the first pass, and within a later one."""
    whole = own(source, *COMMON).train()
    if "num_workers" not in data:  # processes that Keras' fit starts within TensorFlow's threads end with code 1
        assert whole.losses() == losses_of_keras(source, data, seed)
    assert [event["kind"] for event in whole.announce().events("warning") if event["kind"] == "data_state"] == []
    for step in (7, 21):
        models = (training.loop.built.model for training in (resumed(own, source, whole, step), whole))
        weights = [model.get_weights() for model in models]
        assert all(np.array_equal(*pair) for pair in zip(*weights, strict=True)), step


@pytest.mark.parametrize("data", ["by_map()", "by_iteration()", "loader()"])
def test_grain_trains_as_in_keras_and_goes_on_with_the_very_next_batch(data: str, own: Write) -> None:
    check(own, program(f"model(), {data}"), data)


LOADERS = {
    "in order": "DataLoader(pairs, batch_size=10)",
    "shuffled": "DataLoader(Noisy(), batch_size=10, shuffle=True)",
    "with a generator": "DataLoader(pairs, batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(3))",
    "in processes": "DataLoader(Noisy(), batch_size=10, shuffle=True, num_workers=2)",
    "a stream": "DataLoader(Stream(), batch_size=10)",
}


def test_torch_trains_as_in_keras_and_goes_on_with_the_very_next_batch(own: Write) -> None:
    pytest.importorskip("torch")
    with all_hold() as cases:
        for name, data in LOADERS.items():
            with cases.case(name):
                check(own, program(f"model(), {data}", of_torch=True), data, "torch.manual_seed(5)")


def test_the_seed_of_a_training_is_also_that_of_torch_unless_the_code_sets_one(own: Write) -> None:
    torch = pytest.importorskip("torch")
    seeding = program("model(), DataLoader(pairs, batch_size=10)", of_torch=True)
    silent = seeding.replace("    torch.manual_seed(5)\n", "")
    before = silent.replace("class Noisy", "torch.manual_seed(5)\nclass Noisy")
    with all_hold() as cases:
        for name, source, seed in (("none", silent, 3), ("in build", seeding, 5), ("before it", before, 5)):
            with cases.case(name):
                torch.manual_seed(torch.Generator().initial_seed())  # as in a new process
                own(source, "seed=3")
                assert torch.initial_seed() == seed


def test_what_a_resumed_loader_would_not_give_again_is_said_before_the_training(own: Write) -> None:
    pytest.importorskip("torch")
    expected = {
        "DataLoader(Global(), batch_size=10)": "__getitem__ draws from np.random (train.py:",
        "DataLoader(pairs, batch_size=10, num_workers=1, persistent_workers=True)": "keep their random states",
    }
    with all_hold() as cases:
        for data, message in expected.items():
            with cases.case(data):
                training = own(program(f"model(), {data}", of_torch=True), "epochs=1", "checkpoint=epoch").announce()
                messages = [event["message"] for event in training.events("warning") if event["kind"] == "data_state"]
                assert message in messages[0]


def test_tables_of_pandas_and_tensors_of_torch_are_arrays(own: Write) -> None:
    pytest.importorskip("torch")
    tables = "(pandas.DataFrame(x), pandas.Series(y[:, 0])), (torch.from_numpy(x), torch.from_numpy(y))"
    training = own(program(f"model(), {tables}", of_torch=True).replace("import torch", "import torch, pandas"))
    built = training.loop.built.pipeline
    assert [spec.shape.as_list() for spec in built.stream().element_spec] == [[None, 4], [None, 1]]
    assert [spec.dtype.name for spec in built.validation().element_spec] == ["float32", "float32"]
