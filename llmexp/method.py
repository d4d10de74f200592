"""Methods are the paper's names for combinations of techniques, such as F+R+Z3; this module says what each atom sets.

One row of `ATOMS` is one technique. A new technique is a new row, its share of memory and FLOPs, and an engine that
acts on what the row sets.
Other packages add theirs by entry points: docs/extending.md.
The codes are those of arXiv 2311.03687, tables III and IX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from llmexp import plugins
from llmexp.errors import ConfigError, unknown

NAIVE = "Naive"
# The paper's name for Naive in fine-tuning.
FULL = "Full-FT"
Adapter = Literal["lora", "prompt"]


@dataclass(frozen=True)
class Techniques:
    """All switches that atoms can set; the defaults are Naive."""

    flash_attention: bool = False
    recomputation: bool = False
    attention_recomputation: bool = False
    compilation: bool = False
    zero_stage: int = 0
    offload_optimizer: bool = False
    offload_parameters: bool = False
    quantization: str | None = None
    adapter: Adapter | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Values that atoms of other packages set, for their own model hooks and engines."""
    shares: tuple[str, ...] = ()
    """Where the shares of the method's atoms are, in canonical order."""


@dataclass(frozen=True)
class Atom:
    """One technique: its code, what it sets, what it needs (any one of these), what it excludes, and its tasks.

    A name in `sets` that is no field of `Techniques` goes into its `extra`.
    """

    code: str
    help: str
    sets: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("pretrain", "finetune")
    sets_with: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    model_hook: str = ""
    """The dotted path of a function that takes the built model and the techniques.

    Every rank calls it before the engine takes the model.
    """
    share: str = ""
    """Where the atom's `Share` of a plan's memory and FLOPs is, as module:name; empty where nothing changes.

    Without a share a plan does not know what a `model_hook` makes of the model's size.
    """


_SHARES = "llmexp.training.plan.atom_shares"
# In canonical order: P/L/QL, F, R, RS, C, Z, O, Q.
ATOMS: dict[str, Atom] = {
    atom.code: atom
    for atom in (
        Atom(
            "P",
            "prompt tuning: a few embeddings before every sequence train, the model is frozen",
            {"adapter": "prompt"},
            excludes=("L", "QL"),
            tasks=("finetune",),
            share=f"{_SHARES}:PROMPT",
        ),
        Atom(
            "L",
            "LoRA: a product of two narrow matrices beside each linear layer trains, the model is frozen",
            {"adapter": "lora"},
            excludes=("P", "QL"),
            tasks=("finetune",),
            share=f"{_SHARES}:LORA",
        ),
        Atom(
            "QL",
            "QLoRA: LoRA over linear layers in 4-bit NF4 with double quantization, computed in the precision's dtype",
            {"adapter": "lora", "quantization": "nf4"},
            excludes=("P", "L"),
            tasks=("finetune",),
            share=f"{_SHARES}:FOUR_BIT_LORA",
        ),
        Atom(
            "F",
            "FlashAttention: attention in one fused kernel, without the seq x seq matrix in memory",
            {"flash_attention": True},
        ),
        Atom(
            "R",
            "recomputation: keep each layer's input only, run the layer again in backward",
            {"recomputation": True},
            share=f"{_SHARES}:RECOMPUTATION",
        ),
        Atom(
            "RS",
            (
                "selective recomputation: run only attention's products and softmax again in backward, which keep "
                "the seq x seq matrices (F keeps none)"
            ),
            {"attention_recomputation": True},
            excludes=("F", "R"),
        ),
        Atom(
            "C",
            "torch.compile: each decoder layer, and the loss, as kernels generated for its shapes",
            {"compilation": True},
        ),
        Atom(
            "Z1",
            "ZeRO-1: optimizer states partitioned over the data-parallel ranks",
            {"zero_stage": 1},
            excludes=("Z2", "Z3"),
        ),
        Atom("Z2", "ZeRO-2: optimizer states and gradients partitioned", {"zero_stage": 2}, excludes=("Z1", "Z3")),
        Atom(
            "Z3",
            "ZeRO-3: optimizer states, gradients and parameters partitioned",
            {"zero_stage": 3},
            excludes=("Z1", "Z2"),
        ),
        Atom(
            "O",
            "offload to host memory: optimizer states with Z2; parameters too with Z3",
            {"offload_optimizer": True},
            needs=("Z2", "Z3"),
            sets_with={"Z3": {"offload_parameters": True}},
        ),
        Atom(
            "Q",
            (
                "4-bit NF4 weights with double quantization in the linear layers, frozen; embeddings, norms and head "
                "train (not full pre-training)"
            ),
            {"quantization": "nf4"},
            excludes=("Z1", "Z2", "Z3", "O"),
            tasks=("pretrain",),
            share=f"{_SHARES}:FOUR_BIT",
        ),
    )
}

_TAKEN = frozenset(code.lower() for code in (NAIVE, *ATOMS))
_FIELDS = {each.name for each in fields(Techniques)} - {"extra", "shares"}


def atom_codes() -> tuple[str, ...]:
    """Return the codes of all atoms: llmexp's own in canonical order, then those of other packages, sorted by name."""
    return (*ATOMS, *plugins.points(plugins.ATOMS, _TAKEN))


def atom_of(code: str) -> Atom:
    """Return the atom of this code; raise ConfigError where its package is broken."""
    if code in ATOMS:
        return ATOMS[code]
    atom: Atom = plugins.load(plugins.points(plugins.ATOMS, _TAKEN)[code], Atom)
    return replace(atom, code=code)


@dataclass(frozen=True)
class Method:
    """A valid combination of atoms in canonical order; `str()` is its canonical name."""

    codes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, task: str = "pretrain") -> Method:
        """Read a name such as 'R+F' or 'naive' in any order and case; raise ConfigError with what is valid."""
        typed = [part.strip() for part in text.split("+")]
        parts = [part for part in typed if part]
        if not parts:
            raise ConfigError(
                f"method '{text}' is empty: use {NAIVE} or atoms of {', '.join(atom_codes())} joined by '+'"
            )
        if parts != typed:
            raise ConfigError(f"method '{text}': an atom is missing next to a '+': did you mean {'+'.join(parts)}?")
        codes = [NAIVE if part.upper() == FULL.upper() and task == "finetune" else _code(part) for part in parts]
        if NAIVE in codes and len(codes) > 1:
            raise ConfigError(f"method '{text}': {NAIVE} means no technique and cannot be combined")
        method = cls(tuple(code for code in atom_codes() if code in codes))
        method._check(text, task)
        return method

    def __str__(self) -> str:
        return "+".join(self.codes) or NAIVE

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """The atoms in canonical order; empty for Naive."""
        return tuple(atom_of(code) for code in self.codes)

    @property
    def techniques(self) -> Techniques:
        """The switches that all atoms together set."""
        changes = {name: value for atom in self.atoms for name, value in self.changes_of(atom).items()}
        extra = {name: changes.pop(name) for name in changes.keys() - _FIELDS}
        shares = tuple(atom.share for atom in self.atoms if atom.share)
        return replace(Techniques(), **changes, extra=extra, shares=shares)

    def changes_of(self, atom: Atom) -> dict[str, Any]:
        """Return what one atom sets when it is combined with this method's other atoms."""
        changes = dict(atom.sets)
        for partner, extra in atom.sets_with.items():
            if partner in self.codes:
                changes |= extra
        return changes

    def _check(self, text: str, task: str) -> None:
        if {"Q", "L"} <= {*self.codes}:
            rest = "+".join(["QL", *(code for code in self.codes if code not in ("Q", "L"))])
            raise ConfigError(
                f"method '{text}': LoRA over 4-bit weights is one atom, QL: write method={rest} task=finetune"
            )
        for atom in self.atoms:
            clash = next((code for code in atom.excludes if code in self.codes), None)
            if clash:
                raise ConfigError(f"method '{text}': {atom.code} and {clash} exclude each other; keep one of them")
            if atom.needs and not set(atom.needs) & set(self.codes):
                raise ConfigError(
                    f"method '{text}': {atom.code} needs {' or '.join(atom.needs)}, as in {atom.needs[0]}+{atom.code}"
                )
            if task not in atom.tasks:
                raise ConfigError(
                    f"method '{text}': {atom.code} does not belong to task={task}, but to {', '.join(atom.tasks)}: "
                    f"add task={atom.tasks[0]}, as in method={text} task={atom.tasks[0]}"
                )


def _code(part: str) -> str:
    by_upper = {code.upper(): code for code in (NAIVE, *atom_codes())}
    if part.upper() not in by_upper:
        raise unknown("atom", part, by_upper.values())
    return by_upper[part.upper()]


def describe(techniques: Techniques) -> dict[str, Any]:
    """Return the switches that differ from Naive, by name."""
    naive = asdict(replace(Techniques(), shares=techniques.shares))
    return {name: value for name, value in asdict(techniques).items() if value != naive[name]}
