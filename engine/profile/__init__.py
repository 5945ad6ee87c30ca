"""What a profile by TensorFlow says of a run, read with XProf."""
