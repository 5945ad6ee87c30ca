"""What a run's TensorFlow profile shows, read with XProf."""
