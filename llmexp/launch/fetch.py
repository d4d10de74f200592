"""Fetch the weights of a hub name to this node before any rank starts.

The ranks read them from the Hugging Face cache.
"""

from __future__ import annotations

import os
from pathlib import Path

from llmexp.errors import ConfigError
from llmexp.launch.display import say
from llmexp.launch.runtime import Runtime
from llmexp.record.plan import RunPlan

FETCHER = ("-m", "llmexp.launchers.models.hub")
LOOK_S = 10.0


def fetch_weights(plan: RunPlan, log: Path) -> None:
    """Fetch what a hub name needs and this node's cache lacks, and print the progress.

    Raises ConfigError in one line where that fails.
    """
    model = plan.model_to_fetch
    if model is None or Path(model.path).expanduser().is_dir():
        return
    runtime, log = Runtime(plan), log.absolute()
    say(f"looking for {model.path} in the Hugging Face cache and on its hub ...")
    words = [runtime.python, *FETCHER, model.path, *(["code"] if model.trust_remote_code else [])]
    with runtime.start(words, log, {**os.environ, **plan.config.runtime.environment}) as fetcher:
        while not fetcher.ends_within(LOOK_S):
            say(_last_line(log))
        code = fetcher.stop()
    if code:
        raise ConfigError(_last_line(log) or f"model.path={model.path} could not be fetched: see {log}")


def _last_line(log: Path) -> str:
    """Return the last line, or a progress bar's present state: the bar goes to the line's start for each state."""
    lines = [line.strip() for line in log.read_text(errors="replace").replace("\r", "\n").splitlines()]
    return next((line for line in reversed(lines) if line), "")
