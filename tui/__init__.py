"""What a person sees. Never imports TensorFlow."""
