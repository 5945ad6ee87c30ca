"""The engine's tests against several versions of TensorFlow and Keras: `make test-versions`."""
