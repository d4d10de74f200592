"""Atom C before anything is compiled: which modules of a model are called through torch.compile.

That they compute the same is in every_engine/test_methods.py, among the slow tests.
"""

from __future__ import annotations

import pytest
import torch
from planning import make_plan
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import loss_parallel
from torch.profiler import profile

from llmexp.launchers.models import assembly
from llmexp.launchers.training.optimizer_state import local

CPU = torch.device("cpu")
TINY_LAYERS = 2


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.usefixtures("alone")
def test_of_cut_layers_with_r_compiled_code_keeps_the_inputs_and_runs_again_to_its_end() -> None:
    kept, products = zip(*(work_of_cut(method) for method in ("C", "R", "C+R")), strict=True)
    assert kept[2] == kept[1] < kept[0] / 2
    assert products[2] - products[0] == 7 * TINY_LAYERS


def work_of_cut(method: str) -> tuple[int, int]:
    """Return the bytes that autograd holds besides parameters, and the products of a pass."""
    from llmexp.launchers.torch_native.tensor_parallel import cut_matrices  # its imports warn

    words = ("hardware=cpu", "engine=torch", "parallelism.dp=1", "model=tiny", "precision=fp32")
    plan, kept = make_plan(*words, f"model.num_layers={TINY_LAYERS}", f"method={method}"), dict[int, torch.Tensor]()
    model = assembly.with_atoms(assembly.seeded_model(plan, CPU), plan)
    cut_matrices(model, init_device_mesh("cpu", (1,)), along_sequence=False)
    assembly.compile_atom(model, assembly.method_of(plan), cut=True)
    held = {local(each).untyped_storage().data_ptr() for each in [*model.parameters(), *model.buffers()]}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if (place := local(tensor).untyped_storage().data_ptr()) not in held:
            kept[place] = local(tensor)
        return tensor

    ids = torch.zeros((1, 64), dtype=torch.long)
    with saved_tensors_hooks(keep, lambda tensor: tensor), loss_parallel():
        model(input_ids=ids, labels=ids).loss.backward()
    with loss_parallel(), profile() as profiler:
        model(input_ids=ids, labels=ids).loss.backward()
    products = sum(event.name in ("aten::mm", "aten::addmm") for event in profiler.events())
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()), products
