"""What packages of others build on inside the ranks; `llmexp.extend` is the driver's side, and its records serve here.

These names are promised, as those of `llmexp.extend` are. Those of training import torch when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmexp.launchers.data.packing import model_inputs
    from llmexp.launchers.micro.case import Case, CasePlace
    from llmexp.launchers.models.assembly import class_name, optimizer, seeded_model, trained, with_atoms
    from llmexp.launchers.rank.frame import Rank, join_group, main
    from llmexp.launchers.training.measuring import run_rank
    from llmexp.launchers.training.optimizer_state import first_gradient_norm, moments
    from llmexp.measure.batch import MicroBatch

_PLACES = {
    # any task
    "Rank": "llmexp.launchers.rank.frame",
    "main": "llmexp.launchers.rank.frame",
    # training: what a rank does, from its command line to its summary, with an engine's own `join` and `build`
    "run_rank": "llmexp.launchers.training.measuring",
    "join_group": "llmexp.launchers.rank.frame",
    # the plan's model, its atoms and its optimizer
    "seeded_model": "llmexp.launchers.models.assembly",
    "with_atoms": "llmexp.launchers.models.assembly",
    "trained": "llmexp.launchers.models.assembly",
    "optimizer": "llmexp.launchers.models.assembly",
    "class_name": "llmexp.launchers.models.assembly",
    # a point of a family of microbenchmarks
    "Case": "llmexp.launchers.micro.case",
    "CasePlace": "llmexp.launchers.micro.case",
    # a pass, and what an optimizer holds
    "MicroBatch": "llmexp.measure.batch",
    "model_inputs": "llmexp.launchers.data.packing",
    "moments": "llmexp.launchers.training.optimizer_state",
    "first_gradient_norm": "llmexp.launchers.training.optimizer_state",
}

__all__ = [
    "Case",
    "CasePlace",
    "MicroBatch",
    "Rank",
    "class_name",
    "first_gradient_norm",
    "join_group",
    "main",
    "model_inputs",
    "moments",
    "optimizer",
    "run_rank",
    "seeded_model",
    "trained",
    "with_atoms",
]


def __getattr__(name: str) -> Any:
    """Import a promised name when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module 'llmexp.extend_ranks' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)
