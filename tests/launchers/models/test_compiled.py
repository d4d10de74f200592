"""Atom C before anything is compiled: which modules of a model are called through torch.compile.

That they compute the same is in every_engine/test_methods.py, among the slow tests.
"""

from __future__ import annotations

import pytest
import torch
from planning import make_plan

from llmexp.launchers.models import assembly

CPU = torch.device("cpu")


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize(("method", "compiled"), [("C", True), ("F+R+C", True), ("Naive", False)])
def test_with_c_every_layer_is_compiled_and_without_it_none(method: str, compiled: bool) -> None:
    plan = make_plan("hardware=cpu", "engine=torch", "parallelism.dp=1", "model=tiny", f"method={method}")
    model = assembly.with_atoms(assembly.seeded_model(plan, CPU), plan)
    assembly.compile_atom(model, assembly.method_of(plan))
    parts = [*(layer.forward for layer in model.model.layers), model.loss_function]
    found = [hasattr(part, "_torchdynamo_orig_callable") for part in parts]
    assert found == [compiled] * (plan.config.model.num_layers + 1)
