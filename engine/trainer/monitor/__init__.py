"""`Monitor`: a Keras callback that makes a run of any `model.fit`."""
