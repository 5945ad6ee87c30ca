"""How a DataLoader of torch is read, with a stand-in for torch: its random states, its passes, and its warnings.

tests/extras/test_loaders.py does it with the real one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gputui.engine.trainer.own.iterables import exactness
from gputui.engine.trainer.own.iterables.recognised import is_grain, is_torch, passes_of
from gputui.engine.trainer.own.iterables.torch_loader import TorchPasses, seed_torch
from gputui.engine.trainer.own.streams import of_numpy

from tests.support.own import Write


class Tensor:
    """One byte."""

    def __init__(self, value: int) -> None:
        self.value = value

    def numpy(self) -> np.ndarray:
        return np.array([self.value], "uint8")


class Generator:
    """Counts in place of drawing."""

    def __init__(self) -> None:
        self.value, self.seed = 100, 111

    def get_state(self) -> Tensor:
        return Tensor(self.value)

    def set_state(self, state: Tensor) -> None:
        self.value = state.value

    def initial_seed(self) -> int:
        return self.seed

    def draw(self) -> int:
        self.value += 1
        return self.value


class Torch(ModuleType):
    """The functions that are used; `draw` counts in place of drawing from the global random state."""

    uint8 = "uint8"
    Generator = Generator

    def __init__(self) -> None:
        super().__init__("torch")
        self.state, self.seeds = 0, list[int]()

    def get_rng_state(self) -> Tensor:
        return Tensor(self.state)

    def set_rng_state(self, state: Tensor) -> None:
        self.state = state.value

    def frombuffer(self, buffer: bytearray, dtype: str) -> Tensor:
        assert dtype == self.uint8
        return Tensor(buffer[0])

    def initial_seed(self) -> int:
        return self.seeds[-1] if self.seeds else Generator().initial_seed()

    def manual_seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def draw(self) -> int:
        self.state += 1
        return self.state


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    made = Torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


class DataLoader:
    """Three batches of the numbers that are drawn: one at the begin, and one for each batch."""

    def __init__(self, torch: Torch, num_workers: int = 0, generator: Any = None, **more: Any) -> None:
        self.torch, self.num_workers, self.generator = torch, num_workers, generator
        self.persistent_workers = self.sampler = self.batch_sampler = self.dataset = None
        self.closed, self.threads = 0, set[str]()
        vars(self).update(more)

    def __iter__(self) -> Iterator[Any]:
        self.threads.add(threading.current_thread().name)
        own = self.generator.draw() if self.generator else 0
        return self._batches(self.torch.draw(), own)

    def _batches(self, first: int, own: int) -> Iterator[Any]:
        try:
            for _ in range(3):
                self.threads.add(threading.current_thread().name)
                yield (first, own, self.torch.draw())
        finally:
            self.closed += 1


DataLoader.__module__ = "torch.utils.data.dataloader"


class Sized(DataLoader):
    """Knows its length."""

    def __len__(self) -> int:
        return 3


def taken(iterator: Iterator[Any], number: int = 9) -> list[Any]:
    return [batch for _, batch in zip(range(number), iterator, strict=False)]


def test_passes_draw_from_a_copy_of_the_global_state_and_leave_the_global_one_alone(torch: Torch) -> None:
    torch.state = 10
    passes = TorchPasses(DataLoader(torch))
    torch.state = 50
    assert taken(passes.begin()) == [(11, 0, 12), (11, 0, 13), (11, 0, 14)]
    assert torch.state == 50
    assert taken(passes.begin(), 1) == [(15, 0, 16)], "the next pass goes on"
    assert torch.state == 50
    assert (passes.name, passes.exact, passes.once, passes.batches) == ("a torch DataLoader", True, False, None)
    assert TorchPasses(Sized(torch)).batches == 3


def test_a_pass_can_be_begun_again_from_the_states_at_its_begin_until_its_first_batch_is_drawn(torch: Torch) -> None:
    one = Generator()
    passes = TorchPasses(DataLoader(torch, generator=one))
    taken(passes.begin())
    iterator = passes.begin()
    state = passes.state(iterator)
    batches = taken(iterator, 2)
    assert batches == [(5, 102, 6), (5, 102, 7)]
    assert passes.state(iterator) is None, "within a pass there is none"
    assert state == ["BA==", "ZQ=="], "4 and 101, as base64"
    again = TorchPasses(DataLoader(torch, generator=one))
    one.value = 7
    assert taken(again.begin(state), 2) == batches


def test_each_evaluation_draws_the_same_and_a_training_goes_on(torch: Torch) -> None:
    loader = DataLoader(torch, generator=Generator())
    validation = passes_of(loader, "validation")
    assert validation is not None
    first, second, third = (taken(validation.begin()) for _ in range(3))
    assert first == second == third == [(1, 101, 2), (1, 101, 3), (1, 101, 4)]
    training = passes_of(loader)
    assert training is not None
    assert taken(training.begin()) != taken(training.begin())


def test_a_look_at_the_first_batches_takes_numbers_and_counting_gives_them_back(torch: Torch) -> None:
    loader = DataLoader(torch)
    passes = TorchPasses(loader)
    assert passes.peek(2) == [(1, 0, 2), (1, 0, 3)]
    assert loader.closed == 1
    with passes.whole() as batches:
        assert len(list(batches)) == 3
    assert loader.closed == 2
    assert taken(passes.begin(), 1) == [(4, 0, 5)], "as in Keras after its look"


def test_the_generators_of_the_loader_and_its_samplers_are_saved_each_once(torch: Torch) -> None:
    one, two, three = Generator(), Generator(), Generator()
    one.value, two.value, three.value = 1, 2, 3
    batch_sampler = SimpleNamespace(generator=two, sampler=SimpleNamespace(generator=three))
    loader = DataLoader(torch, generator=one, sampler=SimpleNamespace(generator=one), batch_sampler=batch_sampler)
    passes = TorchPasses(loader)
    state = passes.state(passes.begin())
    assert [text[:2] for text in state] == ["AA", "AQ", "Ag", "Aw"]
    one.value = two.value = three.value = 9
    passes.begin(state)
    assert (one.value, two.value, three.value) == (2, 2, 3), "the loader itself draws one number"


@pytest.mark.parametrize("workers", [0, 2])
def test_processes_are_started_by_a_thread_that_python_knows(workers: int, torch: Torch) -> None:
    loader = DataLoader(torch, num_workers=workers)
    taken(TorchPasses(loader).begin())
    assert (loader.threads == {threading.current_thread().name}) is (not workers)
    assert len(loader.threads) == 1


def test_a_seed_is_given_only_to_a_torch_that_the_code_has_imported_and_not_seeded(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_torch(None)
    assert torch.seeds == []
    seed_torch(3)
    assert torch.seeds == [3]
    seed_torch(4)
    assert torch.seeds == [3], "its own seed stays"
    monkeypatch.delitem(sys.modules, "torch")
    seed_torch(5)
    assert torch.seeds == [3]


IMPORTS = """
import sys
import keras, numpy as np
def import_torch():
    sys.modules["torch"] = sys.modules["torch_of_a_test"]
MODULE
def build(context):
    FUNCTION
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made, (np.zeros((20, 2), "float32"), np.zeros(20))
"""


@pytest.mark.parametrize("place", ["MODULE", "FUNCTION"])
def test_torch_is_seeded_once_wherever_the_code_imports_it(
    place: str, own: Write, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setitem(sys.modules, "torch_of_a_test", torch)
    source = IMPORTS.replace(place, "import_torch()").replace("MODULE", "").replace("FUNCTION", "pass")
    own(source, "epochs=1", "batch_size=5", "validation_split=0")
    assert torch.seeds == [7]


# ---- what is not repeated ----------------------------------------------------------------------


class Global:
    """Draws from elsewhere."""

    noise: Any = None

    def __getitem__(self, index: int) -> Any:
        return np.random.normal() + index

    def __iter__(self) -> Iterator[Any]:
        yield self.noise.normal()


DRAWS = "draw with torch.rand and the like"


@pytest.mark.parametrize(
    ("more", "told", "instead"),
    [
        ({}, [], DRAWS),
        ({"num_workers": 1, "persistent_workers": True},
         ["the processes of the DataLoader keep their random states from pass to pass, and a resumed run begins them "
          "with others"], "set persistent_workers=False"),
        ({"num_workers": 2, "in_order": False},
         ["with in_order=False the order of batches depends on the processes' speed"], "set in_order=True"),
        ({"num_workers": 1, "in_order": False}, [], DRAWS),
        ({"num_workers": 2, "in_order": True}, [], DRAWS),
        ({"num_workers": 2}, [], DRAWS),
        ({"dataset": Global()}, ["__getitem__ draws from np.random"], DRAWS),
        ({"dataset": Global(), "num_workers": 2}, [], DRAWS),
        ({"sampler": Global(), "num_workers": 2}, ["__getitem__ draws from np.random"], DRAWS),
        ({"batch_sampler": Global()}, ["__getitem__ draws from np.random"], DRAWS),
    ],
)  # fmt: skip
def test_what_a_resumed_loader_would_draw_otherwise_is_told(
    more: dict[str, Any], told: list[str], instead: str, torch: Torch
) -> None:
    found = exactness.inexact(DataLoader(torch, **more), lambda file: file == __file__)
    assert [place.partition(" (test")[0] for place in found[0]] == told
    assert all(place.endswith("): a resumed run draws other numbers") for place in found[0] if "np.random" in place)
    assert found[1] == instead
    assert exactness.inexact(DataLoader(torch, **more | {"num_workers": 0}), lambda _: False) == ([], DRAWS)


def test_a_generator_that_a_dataset_keeps_is_told_with_its_line(torch: Torch) -> None:
    kept = Global()
    kept.noise = np.random.default_rng(3)
    ((first, second), _) = exactness.inexact(DataLoader(torch, dataset=kept), lambda file: file == __file__)
    assert first.startswith("__iter__ draws from self.noise, which is made outside of it (test_torch_loaders.py:")
    assert second.startswith("__getitem__ draws from np.random (test_torch_loaders.py:")


# ---- recognised by name ------------------------------------------------------------------------


def of_library(name: str, module: str) -> type:
    return type(name, (), {"__module__": module, "__len__": lambda _: 7, "__iter__": lambda _: iter([1, 2])})


def test_data_of_torch_and_grain_are_recognised_by_class_and_library() -> None:
    for name, module, torch, grain in (
        ("DataLoader", "torch.utils.data.dataloader", True, False), ("DataLoader", "grain._src.python", False, True),
        ("MapDataset", "grain._src.python.dataset", False, True), ("IterDataset", "grain", False, True),
        ("Dataset", "torch.utils.data", False, False), ("MapDataset", "grainy.x", False, False),
        ("DataLoader", "mine.torch", False, False),
    ):  # fmt: skip
        kind = of_library(name, module)
        for data in (kind(), type("Mine", (kind,), {})()):
            assert (is_torch(data), is_grain(data)) == (torch, grain), (name, module)
    made = passes_of(of_library("MapDataset", "grain._src")())
    assert made is not None
    assert (made.name, made.batches, made.exact, made.once) == ("a Grain MapDataset", 7, True, False)
    assert [list(made.begin()), list(made.begin())] == [[1, 2], [1, 2]]


class Table:
    """As pandas has a table, or a column."""

    iloc = None

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def to_numpy(self) -> np.ndarray:
        return self.values


def test_tables_of_pandas_and_tensors_of_torch_become_arrays_and_a_column_keeps_its_axis() -> None:
    tensor = SimpleNamespace(requires_grad=False, cpu=lambda: [5, 6])
    other = SimpleNamespace(cpu=lambda: [5, 6])
    x, (column, of_torch, kept) = of_numpy((Table([[1, 2], [3, 4]]), (Table([1, 2]), tensor, other)))
    assert x.tolist() == [[1, 2], [3, 4]]
    assert column.tolist() == [[1], [2]]
    assert of_torch.tolist() == [5, 6]
    assert kept is other
