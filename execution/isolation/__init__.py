"""Run evaluators in separate processes, so that a crash or an endless loop costs one judgement."""
