"""The training itself: the loop around Keras' fit, and the function that runs its steps."""
