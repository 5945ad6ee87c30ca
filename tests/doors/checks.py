from gputui.engine.checks import Finding, gpu_checks
