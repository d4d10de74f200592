"""A small training that goes on from its last checkpoint, and says in log.jsonl where its time goes.

Arguments are its folder, the steps, and the steps between checkpoints. It is a program of its own, with torch alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

VOCABULARY, WIDTH, LAYERS, TOKENS = 512, 320, 6, 64


class Log:
    """A line an event, with the seconds since the one before; the clock is the system's, which all processes share."""

    def __init__(self, path: Path) -> None:
        self._file, self._last_s = path.open("a", buffering=1), time.monotonic()

    def tell(self, event: str, **values: float) -> None:
        """Write one event."""
        now_s = time.monotonic()
        self._file.write(json.dumps({"event": event, "at_s": now_s, "s": now_s - self._last_s, **values}) + "\n")
        self._last_s = now_s


def model() -> nn.Module:
    """Return a language model of 8 million parameters."""
    layer = nn.TransformerEncoderLayer(WIDTH, 5, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), body, nn.Linear(WIDTH, VOCABULARY))


def train(folder: Path, steps: int, every: int) -> None:
    """Train from the last checkpoint on; the data of a step depends on its number alone."""
    log, saved = Log(folder / "log.jsonl"), folder / "checkpoint.pt"
    torch.manual_seed(0)
    net = model()
    optimizer, done = torch.optim.AdamW(net.parameters()), 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["done"]
    log.tell("ready", step=done)
    for step in range(done, steps):
        loss = _step(net, optimizer, step)
        log.tell("step", step=step, loss=loss)
        if (step + 1) % every == 0 or step + 1 == steps:
            _save(saved, {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "done": step + 1})
            log.tell("checkpoint", step=step)


def _step(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> float:
    rows = torch.randint(VOCABULARY, (2, TOKENS), generator=torch.Generator().manual_seed(step))
    loss = nn.functional.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _save(path: Path, state: dict[str, object]) -> None:
    """Write a checkpoint to the disk, by rename: a killed process leaves the one before."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
