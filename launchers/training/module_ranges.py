"""Ranges in the profiled steps: around each step, at the ends of its phases, and around the parts of the model.

The hooks and wrappers exist while `ranges_of` is open, so other steps have none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from llmexp.measure.batch import MicroBatch
from llmexp.measure.loop import Scheduled, Trainable, train_step
from llmexp.record import ranges

# The names that the models of transformers and megatron-core give to their parts.
NAMES = {
    **dict.fromkeys(("embed_tokens", "word_embeddings", "wte"), ranges.EMBEDDING),
    **dict.fromkeys(("self_attn", "self_attention", "attention", "attn"), ranges.ATTENTION),
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj", "linear_qkv", "c_attn", "query_key_value"), ranges.QKV),
    **dict.fromkeys(("rotary_emb", "rotary_pos_emb"), ranges.ROPE),
    **dict.fromkeys(("o_proj", "out_proj", "linear_proj"), ranges.OUTPUT),
    "core_attention": ranges.CORE,
    **dict.fromkeys(("mlp", "feed_forward", "block_sparse_moe"), ranges.MLP),
    "gate_proj": ranges.GATE,
    "up_proj": ranges.UP,
    **dict.fromkeys(("gate_up_proj", "linear_fc1"), ranges.GATE_AND_UP),
    **dict.fromkeys(("down_proj", "linear_fc2"), ranges.DOWN),
    "act_fn": ranges.ACTIVATION,
    **dict.fromkeys(("gate", "router"), ranges.ROUTER),
    "experts": ranges.EXPERTS,
    **dict.fromkeys(("lora_A", "lora_B"), ranges.LORA),
    **dict.fromkeys(("lm_head", "output_layer"), ranges.LM_HEAD),
}
LOSSES = ("loss_function", "compute_language_model_loss", "loss")
ROTATION, EAGER = "apply_rotary_pos_emb", "eager_attention_forward"

ModuleCall = Callable[..., Any]


@contextmanager
def ranges_of(model: nn.Module) -> Iterator[None]:
    """Open a range whenever a part of the model runs its forward, once more in backward included.

    A part that torch.compile has compiled is one range, because hooks inside would change what is compiled.
    """
    with ExitStack() as undo:
        compiled = False
        for path, module in _parts(model):
            whole = _is_compiled(module)
            compiled = compiled or whole
            if name := _name(path, module):
                _hook(module, f"{name} (compiled)" if whole else name, undo)
            for loss in LOSSES:
                if callable(getattr(module, loss, None)) and not isinstance(getattr(module, loss), nn.Module):
                    _replace(module, loss, ranges.LOSS, undo)
        if not compiled:
            _wrap_functions(model, undo)
        yield


def step_with_ranges(
    engine: Trainable | Scheduled, passes: Sequence[MicroBatch], mark: Callable[[str], None]
) -> Sequence[torch.Tensor]:
    """Do one step as `train_step` does, in a range, with a range of no length at the end of each phase."""

    def ends(phase: str) -> None:
        with record_function(ranges.PHASE_END + phase):
            pass
        mark(phase)

    with record_function(ranges.STEP):
        return train_step(engine, passes, ends)


def _parts(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules with their names, without those inside of a compiled one."""
    yield path, model
    if not _is_compiled(model):
        for name, child in model.named_children():
            yield from _parts(child, name if not name.isdecimal() and name != "default" else path)


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")


def _name(path: str, module: nn.Module) -> str | None:
    kind = type(module).__name__
    if kind.endswith(("DecoderLayer", "TransformerLayer")):
        return ranges.LAYER
    if "RMSNorm" in kind or "LayerNorm" in kind:
        return ranges.NORM
    return None if isinstance(module, nn.ModuleList | nn.ModuleDict) and path not in ("experts",) else NAMES.get(path)


def _hook(module: nn.Module, name: str, undo: ExitStack) -> None:
    opened: list[record_function] = []

    def begin(*_: Any) -> None:
        opened.append(record_function(ranges.MODULE + name))
        opened[-1].__enter__()

    def end(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    # Recomputation leaves a forward by an exception once it has what it needs.
    undo.callback(module.register_forward_hook(end, always_call=True).remove)
    undo.callback(module.register_forward_pre_hook(begin).remove)


def _wrap_functions(model: nn.Module, undo: ExitStack) -> None:
    """Open ranges around rotation and core attention, which are functions: of the model's source or registered."""
    for source in {sys.modules[kind.__module__] for part in model.modules() for kind in type(part).__mro__}:
        for function, name in ((ROTATION, ranges.ROPE), (EAGER, ranges.CORE)):
            if hasattr(source, function):
                _replace(source, function, name, undo)
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if implementation not in (None, "eager"):
        from transformers import AttentionInterface

        registered = AttentionInterface()[implementation]
        AttentionInterface.register(implementation, _in_range(registered, ranges.CORE))
        undo.callback(AttentionInterface.register, implementation, registered)


def _replace(owner: Any, attribute: str, name: str, undo: ExitStack) -> None:
    function = getattr(owner, attribute)
    kept = attribute in vars(owner) or isinstance(getattr(type(owner), attribute, None), property)
    setattr(owner, attribute, _in_range(function, name))
    undo.callback(partial(setattr, owner, attribute, function) if kept else partial(delattr, owner, attribute))


def _in_range(function: ModuleCall, name: str) -> ModuleCall:
    @wraps(function)
    def ranged(*args: Any, **options: Any) -> Any:
        with record_function(ranges.MODULE + name):
            return function(*args, **options)

    return ranged
