"""The learning-rate range test: a ramp of the rate, the rate that its losses suggest, and the proof on new seeds."""
