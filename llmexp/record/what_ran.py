"""What really ran, by the engine's and the library's own account; a result keeps that of rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict


class WhatRan(TypedDict, total=False):
    """The account of a rank, with the keys that llmexp's engines write; a task of another package adds its own."""

    device: str
    """The device that the rank computed on, such as cuda:0."""
    backend: str | None
    """The backend of collectives, such as nccl; None for one rank alone."""
    energy_counters: list[str] | None
    """What the energy that was measured covers, such as GPU board; None where it cannot be read."""
    peak_phase: str | None
    """The phase of a step that the device's memory was highest in."""

    attention_kernel: str | None
    """The operator that computed attention, by the profiler."""
    kernels: list[dict[str, Any]]
    """The costliest kernels of a step, by the profiler."""
    products_in: str | None
    """The type that matrix products were computed in."""
    linears: str
    """The type that linear layers multiplied in where it is not that of the parameters, with the products seen."""
    rounded_weights: str
    """What forward rounded matrices to with precision.qat, and how many."""
    attention_implementation: str | None
    norm_implementation: str
    experts_implementation: str | None
    token_dispatcher: str
    expert_tokens_sent: int
    """The tokens that rank 0 sent to experts of other ranks in its last pass, once for each layer and expert."""
    expert_tokens_received: int
    """Those that it got from other ranks for its own experts."""
    fusions: str
    """What Megatron fused, or none."""
    loop: str
    model_class: str
    wrapper_class: str | None
    optimizer_class: str
    """The class that updates parameters, beneath the engine's own."""
    optimizer_parameters: dict[str, int]
    """The parameters that each of two classes has updated, over all ranks."""
    engine_optimizer_class: str
    schedule: str
    """The schedule of the pipeline's passes."""
    loss_scale: float
    """The factor of the last step's loss in backward, where gradients are in fp16."""
    reduced_in: str
    """The type that gradients are added up in over ranks."""
    zero_stage: int
    state_digest: str
    """The SHA-256 of weights and moments at the end, where replicas die and come back."""
    overlap_comm: bool
    activation_offload_bytes: int
    disk_read_bytes: int
    """What rank 0 read from the disk in its last step, as the kernel counted it for the process."""
    disk_written_bytes: int
    accumulated_products: int
    """The products that added to gradients in place in the last step, as their operator counted them."""
    loss_chunks: int
    """The chunks of tokens in which the head computed the loss of the last pass."""
    fused_projections: dict[str, int]
    """The products that give several projections, by their names in a layer."""
    kept_results: int
    """The results that a layer kept instead of computing them again."""
    compiled_graphs: int
    graph_breaks: int

    data_passes: float
    """How often all sequences that exist were read; 1 where there were enough for every step."""
    data_records: int | None
    data_cut_records: int
    data_left_out_records: int
    data_read_records: int
    weights: str
    """The weights that training started from."""
    saved: list[str]
    """Folders with weights, below the run's folder."""

    program: str
    """The command of a training program of one's own."""
    steps_told_by: str
    no_flops: str
    """Why the FLOPs of a program are not known."""
    compute_dtype: str | None

    weights_bytes_from: str
    """What tells the bytes of a server's weights."""
    kv_cache_from: str
    """What tells the bytes of a server's KV cache."""
    texts_read: int
    texts_left_out: int
    texts_sent_again: int
    answers: str
    """Whether a server's answers to serve.quality are those of its weights, and what tells it."""
    api_key: str
    """Whether the server wants LLMEXP_API_KEY, never what it is."""
    cache_bytes: dict[str, int | None]
    """The last cache of the device and of the host."""


# As a field of a record: type checkers know the keys, and values are taken as they are, because no run may fail at its
# end for what it says of itself.
if TYPE_CHECKING:
    Account = WhatRan
else:
    Account = dict[str, Any]
