"""The models that ship: their shape, their size, and where their numbers are float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine import presets
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.measure import flops
from gputui.engine.trainer.setup import models
from keras import layers

from tests.support.training import Build, options

pytestmark = pytest.mark.usefixtures("cpus")

SMALL_IMAGE, IMAGE = (8, 8, 1), (32, 32, 3)
LONGEST = (32, 32, 2)  # as many tokens as the transformer takes
MODELS = ("mlp", "cnn", "separable_cnn", "resnet50", "transformer")


@pytest.fixture(autouse=True)
def _policy() -> Iterator[None]:
    """Keras' precision policy is global: back to its default."""
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights whose values do not matter are not drawn, which takes most of the time of a large model."""
    for drawn in (keras.initializers.VarianceScaling, keras.initializers.RandomUniform):
        monkeypatch.setattr(drawn, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype))


def model(name: str, shape: tuple[int, ...] = SMALL_IMAGE, classes: int = 10, width: float = 1.0) -> keras.Model:
    return models.build(options(f"model={name}", f"width={width}"), shape, classes)


def of(kind: Any, built: keras.Model) -> list[Any]:
    return [layer for layer in built.layers if isinstance(layer, kind)]


@pytest.mark.parametrize("width", [0.05, 1.0])
@pytest.mark.parametrize("shape", [SMALL_IMAGE, IMAGE], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_each_model_gives_one_finite_score_for_each_class(name: str, shape: tuple[int, ...], width: float) -> None:
    shape = LONGEST if name == "transformer" and shape == IMAGE else shape
    built = model(name, shape, classes=7, width=width)
    assert built.output_shape == (None, 7)
    x = np.random.default_rng(0).random((2, *built.input_shape[1:]), dtype="float32")
    x = (x * 255).astype("int32") if name == "transformer" else x
    assert np.isfinite(built(x).numpy()).all()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_under_mixed_precision_layers_compute_in_it_and_the_last_one_in_float32(name: str, policy: str) -> None:
    keras.mixed_precision.set_global_policy(policy)
    built = model(name, width=0.1)
    assert built.layers[-1].compute_dtype == "float32"
    assert built.outputs[0].dtype == "float32"
    computing = of((layers.Dense, layers.Conv2D, layers.SeparableConv2D, layers.MultiHeadAttention), built)[:-1]
    assert {layer.compute_dtype for layer in computing} == {policy.removeprefix("mixed_")}
    assert {variable.dtype for variable in built.trainable_variables} == {"float32"}


DESCRIBED = (
    "units", "filters", "kernel_size", "strides", "padding", "activation", "rate", "momentum", "num_heads", "key_dim",
    "dropout", "use_bias", "input_dim", "output_dim",
)  # fmt: skip
HEAD = "Dense 10 linear True"
NORM = ["BatchNormalization 0.9", "Activation relu"]
BLOCK = [
    "LayerNormalization", "MultiHeadAttention 4 8 0.1 True", "LayerNormalization", "Dense 128 gelu True",
    "Dense 32 linear True", "Dropout 0.1",
]  # fmt: skip
POOL = "MaxPooling2D (2, 2) valid"
LAYERS = {
    "mlp": ["Flatten", "Dense 128 relu True", "Dense 64 relu True", "Dropout 0.1", HEAD],
    "cnn": [
        "Conv2D 16 (3, 3) (1, 1) same relu True", POOL, "Conv2D 32 (3, 3) (1, 1) same relu True", POOL,
        "Conv2D 64 (3, 3) (1, 1) same relu True", "Conv2D 128 (3, 3) (1, 1) same relu True",
        "MaxPooling2D (2, 2) same", "Flatten", "Dense 64 relu True", "Dropout 0.3", HEAD,
    ],
    "separable_cnn": [
        "Conv2D 16 (3, 3) (1, 1) same linear False", *NORM,
        "SeparableConv2D 32 (3, 3) (1, 1) same linear False", *NORM, POOL,
        "SeparableConv2D 64 (3, 3) (1, 1) same linear False", *NORM, POOL,
        "SeparableConv2D 64 (3, 3) (1, 1) same linear False", *NORM, POOL,
        "GlobalAveragePooling2D", "Dropout 0.2", HEAD,
    ],
    "transformer": [
        "Embedding 256 32", "Embedding 64 32", *BLOCK, *BLOCK, "LayerNormalization", "GlobalAveragePooling1D", HEAD,
    ],
}  # fmt: skip


@pytest.mark.usefixtures("zeros")
@pytest.mark.parametrize("name", LAYERS)
def test_each_model_has_these_layers_with_half_the_width(name: str) -> None:
    def described(layer: Any) -> str:
        given = layer.get_config()
        values = [given[key] for key in DESCRIBED if given.get(key) is not None]
        return " ".join(map(str, [type(layer).__name__, *values]))

    built = model(name, SMALL_IMAGE if name in ("mlp", "transformer") else IMAGE, width=0.5)
    assert [described(layer) for layer in built.layers if not isinstance(layer, layers.InputLayer)] == LAYERS[name]


@pytest.mark.usefixtures("zeros")
@pytest.mark.parametrize("name", MODELS)
def test_the_width_shrinks_the_model(name: str) -> None:
    shape = SMALL_IMAGE if name == "transformer" else IMAGE
    if name == "resnet50":  # that of width 1 is the published network, below
        small, half = (model(name, shape, width=width).count_params() for width in (0.125, 0.5))
        assert small < half / 4
        assert half < 25.5e6 / 2
        return
    small, half, whole = (model(name, shape, width=2 * share).count_params() for share in (0.125, 0.5, 1.0))
    assert small < half / 4
    assert whole > half * (1.5 if name == "transformer" else 2)


def test_separable_cnn_is_depthwise_separable_with_batch_norm_before_the_activation() -> None:
    built = model("separable_cnn", IMAGE)
    convolutions = of((layers.Conv2D, layers.SeparableConv2D), built)
    assert len(of(layers.SeparableConv2D, built)) == len(convolutions) - 1 >= 3
    for layer in convolutions:
        assert not layer.use_bias
        norm = _next(layer)
        assert isinstance(norm, layers.BatchNormalization)
        assert isinstance(_next(norm), layers.Activation)


def _next(layer: Any) -> Any:
    (node,) = layer._outbound_nodes
    return node.operation


@pytest.mark.usefixtures("zeros")
def test_resnet50_is_the_published_network() -> None:
    built = model("resnet50", (224, 224, 3), classes=1000)
    published = keras.applications.ResNet50(weights=None)
    assert len(of(layers.Conv2D, built)) == len(of(layers.Conv2D, published)) == 53
    assert len(of(layers.BatchNormalization, built)) == 53
    assert len(of(layers.Dense, built)) == 1
    biases = sum(layer.bias.shape[0] for layer in of(layers.Conv2D, published))
    assert built.count_params() == published.count_params() - biases
    trainable = sum(int(np.prod(variable.shape)) for variable in built.trainable_variables)
    assert trainable == pytest.approx(25.5e6, rel=0.01)
    strides = [layer.strides for layer in of(layers.Conv2D, built) if layer.strides != (1, 1)]
    assert len(strides) == 7  # the first, and two in each of three stages


def test_the_transformer_has_layer_norm_attention_and_positions_that_learn() -> None:
    built = model("transformer")
    assert len(of(layers.MultiHeadAttention, built)) == 2
    assert len(of(layers.LayerNormalization, built)) == 5
    positions = built.get_layer("positions").embeddings
    assert positions.shape == (64, 64)
    tokens = np.random.default_rng(0).integers(0, 256, (4, 64)).astype("int32")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(built(tokens, training=True)[:, 0])
    gradient = tf.convert_to_tensor(tape.gradient(loss, positions.value)).numpy()
    assert (np.abs(gradient).sum(axis=1) > 0).all()


def test_the_transformer_tells_places_apart() -> None:
    built = model("transformer")
    tokens = np.arange(64, dtype="int32")[None]
    assert np.abs(built(tokens).numpy() - built(tokens[:, ::-1].copy()).numpy()).max() > 1e-4


@pytest.mark.parametrize("name", ["cnn", "separable_cnn", "resnet50"])
def test_data_that_are_no_images_are_refused_by_image_models(name: str) -> None:
    with pytest.raises(TrainerError, match=f"{name} needs images") as raised:
        model(name, (12,))
    assert "workload.model=mlp" in raised.value.hint


def test_samples_too_large_for_the_transformer_are_refused() -> None:
    with pytest.raises(TrainerError, match="150528 tokens; the transformer takes at most 2048"):
        model("transformer", (224, 224, 3))


@pytest.mark.usefixtures("zeros")
@pytest.mark.parametrize("name", ["cnn", "separable_cnn", "resnet50"])
def test_image_models_take_odd_sizes(name: str) -> None:
    for shape in (1, 1, 1), (2, 3, 1), (1, 40, 3), (100, 7, 4):
        built = model(name, shape, width=0.05)
        assert built.output_shape == (None, 10), shape
        if name != "resnet50" or shape == (1, 1, 1):  # Keras follows the shapes through all layers when it builds one
            assert built(np.zeros((1, *shape), "float32")).shape == (1, 10), shape


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "separable_cnn", "transformer"])
def test_each_model_learns_digits(name: str, build: Build) -> None:
    # What the mlp learns is in the matrix; resnet50 has 53 layers of the same kind as separable_cnn.
    settings = ("width=0.1", "epochs=2", "steps_per_epoch=12", "batch_size=32", "learning_rate=0.01")
    first, last = build(f"model={name}", *settings, "validation_split=0").train().losses()
    assert last < 0.95 * first


NORMS = {"batch": layers.BatchNormalization, "layer": layers.LayerNormalization}


@pytest.mark.usefixtures("zeros")
@pytest.mark.parametrize("name", MODELS)
def test_normalization_is_a_switch_of_every_model(name: str) -> None:
    def switched(norm: str) -> keras.Model:
        return models.build(options(f"model={name}", "width=0.1", f"normalization={norm}"), SMALL_IMAGE, 10)

    norms = ("layer", "none") if name == "resnet50" else ("batch", "layer", "none")  # batch is what is published
    built = {norm: switched(norm) for norm in norms}
    counts = {norm: {kind: len(of(layer, made)) for kind, layer in NORMS.items()} for norm, made in built.items()}
    assert counts["none"] == {"batch": 0, "layer": 0}
    assert counts["layer"]["layer"] == (counts["batch"]["batch"] if "batch" in counts else 53)
    assert all(counts[one][other] == 0 for one, other in (("batch", "layer"), ("layer", "batch")) if one in counts)
    assert counts["layer"]["layer"] > 0
    if name in ("mlp", "cnn"):  # that the others have one of their own is tested above
        assert not of(tuple(NORMS.values()), model(name, width=0.1))
    convolutions = of((layers.Conv2D, layers.SeparableConv2D), built["none"])
    assert all(layer.use_bias for layer in convolutions), "without normalization a layer needs its bias"


@pytest.mark.usefixtures("zeros")
@pytest.mark.parametrize("name", ["cnn", "separable_cnn", "resnet50"])
def test_kernels_strides_and_separable_convolutions_are_switches_of_the_image_models(name: str) -> None:
    def switched(*settings: str) -> keras.Model:
        return models.build(options(f"model={name}", "width=0.1", *settings), IMAGE, 10)

    kinds = (layers.Conv2D, layers.SeparableConv2D)
    first_size = 7 if name == "resnet50" else 5
    first, *others = of(kinds, switched("kernel_size=5"))
    assert first.kernel_size == (first_size, first_size)
    assert {layer.kernel_size for layer in others} == ({(1, 1), (5, 5)} if name == "resnet50" else {(5, 5)})
    for stride in (1, 2, 4):
        first = of(kinds, switched(f"stride={stride}"))[0]
        assert first.strides == (stride, stride)
        assert first.output.shape[1:3] == (32 // stride, 32 // stride)
    plain, separable = (of(kinds, switched(f"separable={way}")) for way in ("false", "true"))
    assert not [layer for layer in plain if isinstance(layer, layers.SeparableConv2D)]
    replaced = [layer.kernel_size != (1, 1) for layer in plain[1:]]  # all but those of one pixel in resnet50
    assert [isinstance(layer, layers.SeparableConv2D) for layer in separable] == [False, *replaced]
    assert [layer.filters for layer in plain] == [layer.filters for layer in separable]


def test_separable_convolutions_and_strides_save_counted_operations() -> None:
    def counted(*settings: str) -> float:
        count = flops.per_step(models.build(options("width=0.5", *settings), IMAGE, 10), 1)
        assert count is not None
        return count

    plain = counted()
    assert counted("separable=true") < plain / 3
    assert counted("stride=2") < plain / 2
    assert counted("kernel_size=5") > 2 * plain


@pytest.mark.usefixtures("zeros")
def test_the_transformer_of_the_preset_has_100_million_parameters() -> None:
    wanted = presets.resolve("transformer-100m").options
    built = models.build(wanted, tuple(wanted.workload.shape), wanted.workload.classes)
    assert built.count_params() == pytest.approx(100e6, rel=0.02)
    assert len(of(layers.MultiHeadAttention, built)) == 14
