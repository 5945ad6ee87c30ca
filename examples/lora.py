"""A KerasHub backbone fine-tuned with LoRA: its kernels stay as they are, and small matrices next to them are trained.

Needs KerasHub, which gputui's extra `hub` installs.

gputui --preset lora.yaml
gputui --preset lora.yaml --set args.preset=bert_small_en_uncased     # real weights, which KerasHub downloads
"""

import keras
import keras_hub
import numpy as np

LENGTH = 12
GOOD = ["good", "great", "clever", "moving", "funny"]
BAD = ["bad", "dull", "slow", "weak", "flat"]
THINGS = ["film", "plot", "cast", "music", "end"]


def make_reviews(samples, seed=0):
    """Sentences such as "the plot was dull and the cast was great great", and 1 if more of its words are good."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, samples)
    sentences = []
    for label in labels:
        words = [*rng.choice(GOOD if label else BAD, 2), rng.choice(BAD if label else GOOD)]
        things = rng.choice(THINGS, 3)
        parts = [f"the {thing} was {word}" for thing, word in zip(things, rng.permutation(words), strict=True)]
        sentences.append(" ".join(parts))
    return sentences, labels.astype("int32")


def make_backbone():
    """A tiny BERT with random weights and a tokenizer for these few words, so that the example needs no download."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "was", *GOOD, *BAD, *THINGS]
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=len(words),
        num_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        dropout=0.1,
        max_sequence_length=LENGTH + 4,
    )
    return backbone, keras_hub.tokenizers.BertTokenizer(vocabulary=words, lowercase=True)


def build(context):
    preset = context.args["preset"]
    if preset is None:
        backbone, tokenizer = make_backbone()
    else:
        backbone = keras_hub.models.BertBackbone.from_preset(preset)
        tokenizer = keras_hub.tokenizers.BertTokenizer.from_preset(preset)
    if context.args["quantize"]:
        backbone.quantize(context.args["quantize"])  # int8: the frozen kernels take a quarter of the memory
    backbone.enable_lora(context.args["rank"])
    model = keras_hub.models.BertTextClassifier(backbone, num_classes=2)
    model.compile(
        keras.optimizers.Adam(context.args["learning_rate"]),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    sentences, labels = make_reviews(context.args["samples"])
    tokens = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=LENGTH + 4)(sentences)
    return model, ({name: np.asarray(tensor) for name, tensor in tokens.items()}, labels)
