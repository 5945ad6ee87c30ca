"""What the trainer says where a version of Keras lacks a private function that it uses."""

from __future__ import annotations

import importlib

import pytest


def test_a_version_that_lacks_a_private_function_is_named_with_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from gputui.engine.trainer.common import versions
    from gputui.engine.trainer.common.training_errors import TrainerError
    from keras.src.losses import loss

    with monkeypatch.context() as lacking:
        lacking.delattr(loss, "unscale_loss_for_distribution")
        with pytest.raises(TrainerError, match=r"TensorFlow 2\..* and Keras 3\..*unscale_loss_for_dis") as told:
            importlib.reload(versions)
    assert "install TensorFlow 2.21 and Keras 3.15" in told.value.hint
    importlib.reload(versions)
