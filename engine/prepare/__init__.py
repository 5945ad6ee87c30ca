"""Makes data ready once (`gputui prepare`): files of decoded samples, a manifest, and a preset that trains on them."""
