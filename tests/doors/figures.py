from gputui.engine.figures import Figure, LOSS, of_run
