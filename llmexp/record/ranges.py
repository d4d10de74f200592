"""The names of the ranges that a rank opens in the steps that it profiles, and by which a trace is read."""

from __future__ import annotations

STEP = "llmexp.step"
"""A range around one step."""
PHASE_END = "llmexp.end_of."
"""A range of no length at the end of a phase, with the phase's name."""
MODULE = "llmexp.module."
"""A range around a module's forward, with the module's name."""

EMBEDDING, LAYER, NORM, ATTENTION, MLP = "Embedding", "Decoder layer", "RMSNorm", "Attention", "MLP"
QKV, ROPE, CORE, OUTPUT = "QKV", "RoPE", "Core attention", "Output"
GATE, UP, GATE_AND_UP, DOWN, ACTIVATION = "Gate", "Up", "Gate and up", "Down", "Activation"
ROUTER, EXPERTS, LORA, LM_HEAD, LOSS = "Router", "Experts", "LoRA", "LM head", "Loss"
# What core attention is divided into where it is computed in three steps.
BMM0, SOFTMAX, BMM1 = "Bmm0", "Softmax", "Bmm1"

# What the steps of a server do: with all prompts' tokens, with one new token a request, or some of both.
PREFILL, DECODE, BOTH = "prefill", "decode", "prefill and decode"
SERVER_PHASES = (PREFILL, BOTH, DECODE)
SAMPLING = "Sampling"

ALL_REDUCE, ALL_GATHER = "AllReduce", "AllGather"
"""Collectives by what they are, whichever library computes them."""
