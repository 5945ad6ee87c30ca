"""The group `train`: how the model learns, such as epochs, optimizer, learning rate, schedules and validation."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from .catalogue import Group, Limits, option

# The options that name one.
EARLY_STOP, KEEP_BEST, PLATEAU_FIGURE = "train.early_stop", "run.keep_best", "train.plateau_figure"
TESTED = "train.evaluate_at_end"
OFF: Literal["off"] = "off"
OF_OWN_MODELS = ("loss", "accuracy", "val_loss", "val_accuracy")  # the figures of the models that gputui has
FigureName = Annotated[
    str,
    Limits(
        "the name of a figure of each epoch, such as val_loss; with :min or :max if Keras does not know its direction",
        pattern=r"^[^\s:]+(:(min|max))?$",
        max_length=200,
    ),
]


@dataclass(frozen=True)
class WatchedFigure:
    """A figure of each epoch. `direction` is `min` or `max`, or `auto` if Keras infers it from the metric."""

    name: str
    direction: str

    @property
    def of_validation(self) -> bool:
        return self.name.startswith("val_")


def figure_of(value: str) -> WatchedFigure:
    """Return the figure that the value of an option names: `val_loss`, or `val_cost:min` with its direction."""
    name, _, direction = value.partition(":")
    return WatchedFigure(name, direction or "auto")


def watched(value: str) -> WatchedFigure | None:
    """Return the figure that the value of an option names. None for `off`."""
    return None if value == OFF else figure_of(value)


Positive = Annotated[float, Limits(gt=0.0, le=1e9)]
Steps = Annotated[int, Limits(ge=1, le=1_000_000_000)]
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "rmsprop": "RMSprop"}  # classes of keras.optimizers
MOMENTUM = ("sgd", "rmsprop")  # the optimizers that have one
PLATEAU = "reduce_on_plateau"  # the schedule that follows a figure; the others follow the steps
BY_NO_STEPS = ("constant", PLATEAU)  # the schedules that do not follow the steps
NO_EARLY_STOP, NO_PLATEAU = "train.early_stop is off", f"train.schedule is not {PLATEAU}"
EARLY_STOPPING, ON_PLATEAU = "early stopping", "schedule reduce_on_plateau"  # parts of the group
_OPTIMIZER_ARGUMENT = re.compile(r"keras\.optimizers\.\w+\((\w+)=\)")


@dataclass(frozen=True)
class Train(Group):
    """How the model learns."""

    epochs: int = option(
        2,
        "passes over the data, or over steps_per_epoch steps",
        helps="more epochs, as long as the validation loss falls",
        hurts="more epochs take more time; if the validation loss rises, the model overfits",
        ge=1,
        le=1_000_000,
        essential=4,
        other_names="num_epochs n_epochs max_epochs ep",
    )
    steps_per_epoch: Steps | None = option(
        None,
        "steps that make an epoch; not given: one pass over the data",
        call="model.fit(steps_per_epoch=)",
        helps="large or endless data: validation, checkpoints and figures come after this many steps",
        hurts="short epochs spend more of their time on validation and checkpoints",
        unit="steps",
        other_names="max_steps num_steps iterations iters steps",
    )
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = option(
        "adam",
        "the optimizer",
        call="keras.optimizers",
        helps="adam needs the least tuning; sgd with momentum is common for image models, adamw for transformers",
        hurts="adam and adamw keep two values for every weight, rmsprop one",
        own="uncompiled",
        learning="another optimizer learns differently",
        other_names="opt optim",
    )
    momentum: float = option(
        0.0,
        "share of the last update that is added to the next one, for sgd and rmsprop",
        call="keras.optimizers.SGD(momentum=)",
        helps="most image models are trained by sgd with 0.9",
        hurts="one more value for every weight",
        ge=0.0,
        lt=1.0,
        own="uncompiled",
        learning="the momentum changes what is learnt",
        not_exported="only sgd and rmsprop take it",
    )
    nesterov: bool = option(
        False,
        "Nesterov momentum, for sgd with momentum: the gradient after the step of the momentum",
        call="keras.optimizers.SGD(nesterov=)",
        helps="often needs a few steps less than plain momentum",
        own="uncompiled",
        learning="the momentum changes what is learnt",
        not_exported="only sgd with momentum takes it",
    )
    weight_decay: Annotated[float, Limits(ge=0.0, le=10.0)] | None = option(
        None,
        "share of each weight that is subtracted in a step, times the learning rate; not given: 0.004 with adamw, "
        "else none",
        call="keras.optimizers.Optimizer(weight_decay=)",
        helps="less overfitting",
        hurts="with too much, the model does not learn",
        own="uncompiled",
        learning="weight decay changes what is learnt",
        other_names="wd decoupled_weight_decay l2",
    )
    learning_rate: float = option(
        0.001,
        "learning rate, at its highest",
        call="keras.optimizers.Optimizer(learning_rate=)",
        helps="the first value to tune: if it is too low, the loss falls slowly; if too high, it jumps or becomes NaN",
        hurts="a larger global batch usually needs a higher value",
        gt=0.0,
        le=1000.0,
        essential=6,
        own="uncompiled",
        learning="the learning rate changes what is learnt",
        other_names="lr rate base_lr",
    )
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = option(
        "none",
        "with several replicas, multiply the learning rate by their number (linear), by its square root (sqrt), or "
        "not at all (none), as the global batch is larger",
        call="keras.optimizers.Optimizer(learning_rate=)",
        helps="several replicas with a learning rate that was tuned on one device: linear for sgd (Goyal et al. 2017, "
        "with a warm-up of some epochs), sqrt for adam (Krizhevsky 2014, Malladi et al. 2022)",
        hurts="without train.warmup_steps the first steps may diverge at the scaled rate; the rules have a limit: "
        "above a few thousand samples per step compare the losses",
        own="uncompiled",
        learning="the learning rate changes what is learnt",
        other_names="lr_scaling scale_lr linear_scaling scaling_rule auto_scale_lr",
    )
    schedule: Literal["constant", "cosine", "exponential", "step", "cyclical", "ramp", "reduce_on_plateau"] = option(
        "constant",
        "how the learning rate changes over the steps; ramp: it rises from learning_rate * decay_rate to "
        "learning_rate, as in a range test; reduce_on_plateau: it falls if plateau_figure no longer improves",
        call="keras.optimizers.schedules.LearningRateSchedule, keras.callbacks.ReduceLROnPlateau",
        helps="a rate that falls towards the end usually reaches a lower loss than a constant one",
        hurts="all but reduce_on_plateau are planned for a number of steps: a longer or shorter training has another "
        "rate at each step",
        essential=7,
        own="uncompiled",
        learning="the learning rate changes what is learnt",
        other_names="scheduler lr_schedule lr_scheduler decay annealing",
    )
    warmup_steps: int = option(
        0,
        "steps in which the learning rate rises from 0",
        helps="large batches and transformers, whose first steps may diverge at the full rate",
        hurts="the model learns little in the first of these steps",
        unit="steps",
        ge=0,
        le=1_000_000_000,
        own="uncompiled",
        learning="the learning rate changes what is learnt",
        other_names="warmup lr_warmup num_warmup_steps",
    )
    hold_steps: int = option(
        0,
        "steps after the warm-up in which the learning rate stays at its highest, before the schedule begins",
        helps="a training can be made longer without a new plan of the decay: hold first, decay at the end",
        unit="steps",
        ge=0,
        le=1_000_000_000,
        own="uncompiled",
        learning="the learning rate changes what is learnt",
        not_exported="train.schedule is constant",
    )
    decay_steps: Steps | None = option(
        None,
        "length of the schedule: steps until cosine and exponential have fallen by decay_rate, between two "
        "drops of step, or of one cycle of cyclical; not given: all steps, a third of them, or an epoch",
        helps="the curve of the rate stays the same if the number of epochs or samples changes",
        hurts="a schedule that is longer than the training does not reach its lowest rate",
        unit="steps",
        own="uncompiled",
        learning="the learning rate changes what is learnt",
        not_exported="train.schedule is constant",
    )
    decay_rate: float = option(
        0.1,
        "factor by which the learning rate changes over decay_steps, or at each plateau",
        helps="with 0.01, cosine ends at a hundredth of the rate",
        hurts="if the rate falls too early, the model learns no more",
        gt=0.0,
        lt=1.0,
        own="uncompiled",
        learning="the learning rate changes what is learnt",
        not_exported="train.schedule is constant",
    )
    plateau_figure: FigureName = option(
        "val_loss",
        "the figure of each epoch that reduce_on_plateau follows; an improvement below 0.0001 does not count",
        call="keras.callbacks.ReduceLROnPlateau(monitor=)",
        own="uncompiled",
        part=ON_PLATEAU,
        examples=OF_OWN_MODELS,
        learning="the learning rate changes what is learnt",
        not_exported=NO_PLATEAU,
    )
    plateau_patience: int = option(
        10,
        "epochs without improvement after which the learning rate is multiplied by decay_rate",
        call="keras.callbacks.ReduceLROnPlateau(patience=)",
        unit="epochs",
        ge=1,
        le=1_000_000,
        own="uncompiled",
        part=ON_PLATEAU,
        learning="the learning rate changes what is learnt",
        not_exported=NO_PLATEAU,
    )
    plateau_min_rate: float = option(
        0.0,
        "learning rate below which reduce_on_plateau does not go",
        call="keras.callbacks.ReduceLROnPlateau(min_lr=)",
        ge=0.0,
        le=1000.0,
        own="uncompiled",
        part=ON_PLATEAU,
        learning="the learning rate changes what is learnt",
        not_exported=NO_PLATEAU,
        other_names="min_lr",
    )
    early_stop: Literal["off"] | FigureName = option(
        OFF,
        "end the training if this figure of each epoch no longer improves: loss, val_loss, accuracy, val_accuracy, or "
        "any figure of your own code; off: train all epochs",
        call="keras.callbacks.EarlyStopping(monitor=)",
        helps="a training that overfits or learns no more ends by itself; train.epochs is then the most it takes",
        hurts="a figure that varies much from epoch to epoch may end it too early: raise early_stop_patience",
        part=EARLY_STOPPING,
        examples=OF_OWN_MODELS,
        learning="the training may end after fewer epochs",
        other_names="earlystopping early_stopping monitor",
    )
    early_stop_patience: int = option(
        5,
        "epochs without improvement after which the training ends",
        call="keras.callbacks.EarlyStopping(patience=)",
        unit="epochs",
        ge=1,
        le=1_000_000,
        part=EARLY_STOPPING,
        learning="the training may end after fewer epochs",
        not_exported=NO_EARLY_STOP,
        other_names="patience",
    )
    early_stop_min_delta: float = option(
        0.0,
        "the least change of the figure that counts as an improvement",
        call="keras.callbacks.EarlyStopping(min_delta=)",
        ge=0.0,
        le=1e9,
        part=EARLY_STOPPING,
        learning="the training may end after fewer epochs",
        not_exported=NO_EARLY_STOP,
        other_names="min_delta",
    )
    early_stop_restore: bool = option(
        False,
        "at the end of the training, give the model the weights of its best epoch",
        call="keras.callbacks.EarlyStopping(restore_best_weights=)",
        helps="run.save_model then saves the best model, not the last one",
        hurts="keeps the weights once more in memory, and in each checkpoint",
        part=EARLY_STOPPING,
        learning="the model ends with the weights of another epoch",
        not_exported=NO_EARLY_STOP,
        other_names="restore_best_weights load_best_model_at_end",
    )
    clip_norm: Positive | None = option(
        None,
        "clip each gradient to this norm",
        call="keras.optimizers.Optimizer(clipnorm=)",
        helps="single layers whose gradients become too large",
        hurts="changes the direction of the step, as each variable is clipped separately; global_clip_norm keeps it",
        own="uncompiled",
        learning="clipped gradients change what is learnt",
    )
    clip_value: Positive | None = option(
        None,
        "clip each element of the gradients to this size",
        call="keras.optimizers.Optimizer(clipvalue=)",
        helps="single elements of gradients that become too large",
        hurts="changes the direction of the step; global_clip_norm keeps it",
        own="uncompiled",
        learning="clipped gradients change what is learnt",
        other_names="clipvalue",
    )
    global_clip_norm: Positive | None = option(
        None,
        "clip all gradients together to this norm",
        call="keras.optimizers.Optimizer(global_clipnorm=)",
        helps="transformers, recurrent layers, and trainings whose loss jumps",
        hurts="a norm below the usual one of the gradients slows all learning",
        own="uncompiled",
        learning="clipped gradients change what is learnt",
    )
    gradient_accumulation: int = option(
        1,
        "number of steps whose gradients are averaged into one update of the weights; the learning rate schedule and "
        "all figures still count steps",
        call="keras.optimizers.Optimizer(gradient_accumulation_steps=)",
        helps="learns as with a batch this many times larger, which might not fit into the GPU's memory",
        hurts="takes memory for one more value per weight; batch normalization still uses the small batches; not with "
        "mirrored",
        unit="steps",
        ge=1,
        le=10_000,
        own="uncompiled",
        learning="the weights change once in several steps",
    )
    micro_batches: int = option(
        1,
        "number of parts in which each batch is computed, one after another; their gradients make one update; steps, "
        "learning rate schedule, speeds and global batch stay those of the whole batch",
        call="tf.GradientTape",
        helps="a batch whose activations do not fit into the GPU's memory can be trained; the evaluation is computed "
        "in parts, too",
        hurts="smaller parts use a GPU less well; takes memory for one more value per weight; without batch "
        "normalization and dropout the result is that of the whole batch except for rounding: batch normalization "
        "uses the means of each part, and dropout draws other numbers; with embeddings, Adam and other optimizers that "
        "square gradients take other steps (docs/gpu.md); not with a train_step of your own",
        unit="parts",
        ge=1,
        le=10_000,
        learning="batch normalization and dropout work on parts of each batch",
        other_names="microbatch microbatches micro_batch micro_batch_size num_microbatches split_batch",
    )
    seed: Annotated[int, Limits(ge=0, le=2**31 - 1)] | None = option(
        None,
        "seed of the weights, the order of the data, dropout and augmentation; not given: drawn at launch "
        "and written into the run's preset.yaml",
        call="keras.utils.set_random_seed",
        helps="two runs differ in their options alone",
        hurts="the results are not the same to the last digit: for that use train.deterministic",
        learning="another seed starts from other weights",
        other_names="random_seed random_state rng manual_seed",
    )
    deterministic: bool = option(
        False,
        "bitwise the same result each time on the same machine",
        call="tf.config.experimental.enable_op_determinism",
        helps="two runs can be compared to the last digit",
        hurts="15 to 20 % slower on a CPU; cannot be combined with XLA",
    )
    validation: Literal["split", "test"] = option(
        "split",
        "what is evaluated after each epoch: split (validation_split of the data), or test (the test part of mnist, "
        "fashion_mnist, cifar10, or x_test and y_test of an npz; all other samples train, and validation_split is not "
        "used)",
        call="model.fit(validation_data=)",
        helps="figures that can be compared with published ones",
        hurts="options that are chosen by test figures make these look better than they are",
        own="unread",
        learning="another share of the data is learnt from",
    )
    validation_split: float = option(
        0.1,
        "share of the data that is kept for validation after each epoch; 0: none; of arrays and image folders samples "
        "that train.seed draws (Keras keeps the last ones)",
        call="model.fit(validation_data=)",
        helps="shows overfitting: the validation loss rises while the loss falls",
        hurts="the model does not train on these samples, and each evaluation takes time",
        ge=0.0,
        le=0.9,
        essential=8,
        own="arrays",
        learning="another share of the data is learnt from",
        other_names="val_split val validation_data test_split holdout",
    )
    evaluate_at_end: Literal["auto"] | bool = option(
        "auto",
        "evaluate the test data once, when the training has ended, with the best model that run.keep_best or "
        "early_stop_restore knows, else the last one; auto: those that your code returns as test; true: also the test "
        "part of mnist, fashion_mnist, cifar10, or x_test and y_test of an npz",
        call="model.evaluate()",
        helps="figures of samples by which nothing was chosen: no epoch, no option",
        hurts="looked at after each change, the test data become a validation",
        other_names="test test_data final_evaluation",
    )
    stop_on_nan: bool = option(
        True,
        "end the run as failed if weights are no longer finite",
        helps="a model that can learn no more does not use the GPU for hours",
    )
    nan_check_steps: Literal["auto"] | Steps = option(
        "auto",
        "steps between two checks of the weights; auto: as often as costs less than 0.5 % of the time",
        helps="1 finds the exact step after which a weight is not finite",
        hurts="each check waits for the device: with 1 every step does",
        unit="steps",
        not_exported="TerminateOnNaN checks the loss of every batch, not the weights",
    )

    @property
    def validates(self) -> bool:
        """True if gputui's options keep samples for an evaluation after each epoch."""
        return self.validation == "test" or self.validation_split > 0

    @property
    def reads_test(self) -> bool:
        """True if the test part of gputui's own data is evaluated, after each epoch or at the end."""
        return self.validation == "test" or self.evaluate_at_end is True

    def tests(self, own: bool) -> bool:
        """True if test data that are there are evaluated at the end; `own`: your code may return them."""
        return self.evaluate_at_end is True or (own and self.evaluate_at_end == "auto")

    @property
    def stops_by(self) -> WatchedFigure | None:
        """The figure by which the training may end early; None if train.early_stop is off."""
        return watched(self.early_stop)

    @property
    def reduces_rate_by(self) -> WatchedFigure | None:
        """The figure by which the learning rate is reduced; None with another schedule."""
        return figure_of(self.plateau_figure) if self.schedule == PLATEAU else None

    @property
    def optimizer_arguments(self) -> dict[str, tuple[str, Any]]:
        """Arguments of Keras' optimizer, with the option and its value. An option whose `call` is
        `keras.optimizers.CLASS(ARGUMENT=)` sets it if it differs from its default, which is Keras' own.
        """
        arguments: dict[str, tuple[str, Any]] = {}
        for info in fields(self):
            match = _OPTIMIZER_ARGUMENT.fullmatch(info.metadata["about"].call)
            value = getattr(self, info.name)
            if match and match[1] != "learning_rate" and value != info.default:
                arguments[match[1]] = info.name, value
        return arguments
