"""One shuffled Dataset, of which train and validation are taken; a schedule that follows the validation."""

import json

import keras
import tensorflow as tf
from beside import data

keras.utils.set_random_seed(5)
whole = tf.data.Dataset.from_tensor_slices(data(170)).shuffle(170, seed=3).batch(10).prefetch(2)
model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse", steps_per_execution=2)
plateau = keras.callbacks.ReduceLROnPlateau(patience=1)
history = model.fit(whole.skip(5), epochs=4, validation_data=whole.take(5), callbacks=[plateau], verbose=0)
print("RESULT", json.dumps(history.history))
