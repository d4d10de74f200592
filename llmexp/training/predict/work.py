"""The work of one training step on one rank, by what limits it: products, memory, launches, links and the host.

Every field is a number, so that the schedule computes with one step or with arrays of many.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from llmexp.dtypes import bytes_of
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.training.plan.activations import activations
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import MEGATRON, by_transformer_engine
from llmexp.training.plan.trained import Trained
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.bubble import bubble_share
from llmexp.training.predict.engine_fp8 import engine_fp8_of
from llmexp.training.predict.fp8_work import Fp8Work, fp8_work_of
from llmexp.training.predict.layers import Layers, layers_of, slowest_stage
from llmexp.training.predict.state import state_of
from llmexp.training.predict.traffic import traffic_of
from llmexp.training.predict.update import FUSED, UNFUSED, bytes_of_update

DEEPSPEED = "deepspeed"
BF16 = 2
# Kernels of an expert over those of a whole layer: three products and what gathers, gates and scatters its tokens.
_EXPERT_LAUNCHES = 0.2
# Elements that a routed token moves for each of its experts: gathered and scattered, both read and written.
_MOVES = 4
# What tensor parallelism leaves whole of elementwise work: norms and sums of residuals, which Megatron fuses. Of 37
# pairs of published runs that differ in sequence parallelism alone the ratio errs by 2.5 % with a fifth, 11 % with half
# (root mean squares).
_WHOLE, _WHOLE_OF_MEGATRON = 0.5, 0.2
# The columns of the products whose rows are known (rates.py has the source).
_MEASURED_WIDE = 4096


@dataclass(frozen=True)
class Work:
    """One rank's work in one step; flags are 0 or 1.

    A pass is one forward and backward of a micro batch. Sizes of links are what one rank sends.
    """

    passes: float
    bubble: float
    """Time in which a stage waits for others, as a share of that of all passes."""
    tokens: float
    """Positions of a pass on a rank: the rows of every product."""
    narrow: float
    """How many times as narrow as measured ones matrices are, whole or as tensor parallelism cuts them."""
    expert_narrow: float
    """The same for an expert's matrices."""
    products_flops: float
    """FLOPs of products of matrices in one forward pass, attention, routed experts and those in fp8 aside."""
    head_flops: float
    """Those of the head among them, which one stage alone has."""
    fp8_flops: float
    fp8_narrow: float
    """The same for products in fp8; by TransformerEngine, how many times as narrow as measured ones these are."""
    weights_in_16_bits: float
    cast_bytes: float
    cast_bytes_behind: float
    cast_layers: float
    cast_layers_behind: float
    expert_flops: float
    expert_rows: float
    """The rows of an expert's products."""
    frozen: float
    """The matrices do not train, so that backward computes one product for each of forward, not two."""
    score_elements: float
    """Elements of all layers' attention matrices, where they are written to memory; wider dtypes count for more."""
    attention_flops: float
    """FLOPs of fused attention in one forward pass: the causal half of two products."""
    seq_len: float
    hidden_bytes: float
    """Tokens x hidden size x layers: what norms, rotary embeddings, residuals and gates read and write many times."""
    moved_bytes: float
    """What is gathered for routed experts and scattered back."""
    fused: float
    """F is on."""
    compiled: float
    """Elementwise operations are fused, by C or Liger."""
    megatron: float
    """Elementwise operations are Megatron's, of which it fuses some."""
    recomputed: float
    """The share of layers with R on: their backward begins with another forward pass."""
    attention_again: float
    """RS is on: backward begins with another forward of attention."""
    kept_attention: float
    """R keeps the results of attention."""
    kept_products: float
    """R keeps those of all products."""
    dequantized_parameters: float
    layers: float
    launched_layers: float
    """Layers, and experts as shares of layers, by the kernels that are launched for them."""
    adapter: float
    update_bytes: float
    """What the optimizer reads and writes at least, on the device."""
    unfused_update: float
    zero2: float
    """Gradients are reduced to their shares, and parameters gathered after the update (Z1 and Z2 of DeepSpeed)."""
    zero2_beside: float
    """The same beside computing: Megatron gathers beside the next forward, and FSDP2 layer by layer."""
    reduced_before: float
    """Passes before the last that reduce gradients too, so that parts of them are all that stays: those of Z2."""
    zero3: float
    zero3_hooks: float
    """DeepSpeed's hooks run before and after each layer of Z3."""
    replicated: float
    """Gradients are reduced to all ranks."""
    reduced_bytes: float
    """A rank's gradients x (n - 1) / n."""
    gathered_bytes: float
    """Parameters, with Z3 frozen ones too, x (n - 1) / n: what Z3 gathers for one forward pass."""
    copied_bytes: float
    """Gradients of a shard that a rank sends to the copies of it."""
    added_bytes: float
    """What is read and written to add the gradients of a pass to those of the passes before."""
    tensor_bytes: float
    tensor_calls: float
    tensor_beside: float
    """Backward sends beside the gradients of weights, as Megatron's layers do; DTensor's wait for both."""
    tensor_beside_forward: float
    """Forward sends beside its products, as TransformerEngine's layers can; those of no engine here do."""
    sequence: float
    ring_bytes: float
    ulysses_bytes: float
    context_calls: float
    expert_bytes: float
    expert_calls: float
    stage_bytes: float
    stage_calls: float
    node_doublings: float
    """How often one node was doubled."""
    stages_overlap: float
    """Interleaved stages send while they compute."""
    offloaded_activation_bytes: float
    host_parameters: float
    """Parameters that the processors of a host update, for all ranks of its node together."""
    fetched_parameters: float
    """Parameters that lie in host memory."""


def work_of(plan: TrainingPlan) -> Work:
    """Return the work of a plan that `unpredicted` has nothing to say of."""
    config, techniques, dims = plan.config, plan.techniques, plan.dims
    layers, shape = layers_of(config.model), shape_of(config.model)
    trained = _trained(plan, layers)
    seq_len = float(config.data.seq_len + config.adapter.virtual_tokens * (techniques.adapter == "prompt"))
    tokens, element = plan.batch.micro * seq_len / dims.cp, bytes_of(config.precision.parameters)
    stage = slowest_stage(layers, dims)
    share, count = stage.share / dims.tp, layers.count * stage.share
    flash, zero, engine = techniques.flash_attention, techniques.zero_stage, config.engine.name
    state, traffic = state_of(plan, layers, trained), traffic_of(plan, layers, tokens, stage.share)
    counted, head_flops = by_transformer_engine(config), 2.0 * tokens * layers.head / dims.tp * stage.head
    fp8 = _fp8_of(plan, layers, tokens, trains=trained.matrices_train)
    return Work(
        passes=float(plan.batch.accumulation),
        bubble=bubble_share(dims, plan.batch.accumulation),
        tokens=tokens,
        narrow=_MEASURED_WIDE * dims.tp / layers.hidden_size,
        expert_narrow=float(dims.expert_tensor),
        products_flops=2.0 * tokens * layers.matrices * share + head_flops - fp8.fp8_flops,
        head_flops=head_flops,
        **vars(fp8),
        expert_flops=2.0 * tokens * layers.expert_matrices * share,
        expert_rows=_expert_rows(layers, tokens, dims),
        frozen=float(not trained.matrices_train),
        score_elements=0.0 if flash else tokens * layers.heads * seq_len * share * _width(element) / BF16,
        attention_flops=tokens * layers.attention_flops(seq_len) * share if flash else 0.0,
        seq_len=seq_len,
        hidden_bytes=tokens * layers.hidden_size * count * _kept_whole(plan) * _width(element) * (not counted),
        moved_bytes=_moved_elements(layers, tokens) * stage.share * dims.expert_tensor / dims.tp * element,
        fused=float(flash),
        compiled=float(techniques.compilation or config.kernels.liger),
        megatron=float(engine == MEGATRON),
        recomputed=techniques.recomputation * config.memory.recomputed_share(layers.count),
        attention_again=float(techniques.attention_recomputation),
        kept_attention=float(config.memory.keep is not None),
        kept_products=float(config.memory.keep == "products"),
        dequantized_parameters=float(trained.four_bit),
        layers=count,
        launched_layers=count + _EXPERT_LAUNCHES * layers.routed * layers.experts / dims.ep * stage.share,
        adapter=float(techniques.adapter == "lora"),
        update_bytes=0.0 if techniques.offload_optimizer else state.updated * bytes_of_update(plan),
        unfused_update=FUSED if config.optimizer.implementation == "torch" else UNFUSED,
        zero2=float(zero in (1, 2) and engine == DEEPSPEED),
        zero2_beside=float(zero in (1, 2) and engine != DEEPSPEED),
        reduced_before=float(plan.batch.accumulation - 1) * (zero == 2),
        zero3=float(zero == 3),
        zero3_hooks=float(zero == 3 and engine == DEEPSPEED),
        replicated=float(zero == 0 and dims.same_parameters > 1),
        reduced_bytes=state.reduced_bytes,
        gathered_bytes=state.gathered_bytes,
        copied_bytes=state.copied_bytes,
        added_bytes=state.added_bytes,
        tensor_beside=float(engine == MEGATRON),
        tensor_beside_forward=0.0,
        **vars(traffic),
        node_doublings=log2(max(1, dims.world_size // config.hardware.devices_per_node)),
        stages_overlap=float(dims.virtual_stages > 1),
        offloaded_activation_bytes=_offloaded(plan, shape),
        host_parameters=state.on_host,
        fetched_parameters=float(layers.parameters) if techniques.offload_parameters else 0.0,
    )


def _fp8_of(plan: TrainingPlan, layers: Layers, tokens: float, *, trains: bool) -> Fp8Work:
    """Return the work in fp8 by the library that multiplies; nothing where none does."""
    if by_transformer_engine(plan.config):
        return engine_fp8_of(plan, layers, tokens, trains=trains)
    return fp8_work_of(plan, layers, tokens)


def _moved_elements(layers: Layers, tokens: float) -> float:
    """Return the elements of tokens' copies that are moved to their experts and back."""
    return _MOVES * tokens * layers.hidden_size * layers.experts_per_token * layers.routed


def _trained(plan: TrainingPlan, layers: Layers) -> Trained:
    """Return what trains; of layers that are not like Llama's all parameters do."""
    shape = layers.counted
    return (
        Trained.of(shape, plan.techniques, plan.config.adapter)
        if isinstance(shape, ModelShape)
        else Trained(layers.parameters)
    )


def _expert_rows(layers: Layers, tokens: float, dims: ParallelDims) -> float:
    """Return the rows of an expert: the tokens that all ranks with other experts send it, where all get as many."""
    sent = tokens * dims.ep * dims.expert_tensor / dims.tp * layers.experts_per_token
    return sent / layers.experts if layers.experts else 1.0


def _kept_whole(plan: TrainingPlan) -> float:
    """Return the share of elementwise work on a rank: tensor parallelism cuts a part of it, and all with sequences."""
    tp = plan.dims.tp
    whole = _WHOLE_OF_MEGATRON if plan.config.engine.name == MEGATRON else _WHOLE
    return 1 / tp if plan.dims.sequence else whole + (1 - whole) / tp


def _width(element: int) -> float:
    """Return the bytes of an element of elementwise work: half of it is in fp32 anyway, where parameters are bf16."""
    return 1 + element / 2


def _offloaded(plan: TrainingPlan, shape: ModelShape | None) -> float:
    """Return the bytes of a pass's activations that go to the host and back."""
    if not plan.config.memory.activation_offload or shape is None:
        return 0.0
    return float(activations(shape, plan.config, plan.techniques, plan.dims, plan.batch.micro).on_host)
