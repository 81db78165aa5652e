"""How a run goes: settings, the one loop, the phases, skill selection, evaluation, logs, progress."""
