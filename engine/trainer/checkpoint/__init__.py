"""Everything that changes while a model trains, saved so that a run goes on exactly."""
