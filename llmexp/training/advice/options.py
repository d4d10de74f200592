"""The options of a training: engines, layouts and methods with the largest batch that fits, then what speeds them up.

Memory grows with the batch, and the time of a token falls. So the largest power of two decides each method, and what
does not fit with one sequence is not looked at further.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from llmexp.dtypes import HALF, SCALED
from llmexp.errors import ConfigError
from llmexp.inputs.shape import shape_of
from llmexp.launch.preflight import certain_skip
from llmexp.record.skip import SkipCode
from llmexp.tasks.base import PlanWith
from llmexp.training.advice.layouts import VIRTUAL, layers_of, layouts, virtual_stages
from llmexp.training.advice.mathematics import changes_of
from llmexp.training.advice.methods import joined, methods
from llmexp.training.engine import TrainingEngine
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.float8 import multiplies_fp8
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.planning import training_engine
from llmexp.training.predict.prediction import ENGINES, unpredicted

GLOBAL = "batch.global"
# More positions of a pass than these make no kernel faster.
MOST_POSITIONS = 1 << 17
# Passes of a pipeline's step where no global batch is asked for: its stages wait for a fifth of the time.
PASSES_A_STAGE = 4
# The fastest of each mathematics that are tried with what layout and method leave open.
TRIED_FURTHER = 3
SHARD = "parallelism.shard"
RECOMPUTED = "memory.recompute_layers"
# R in a half of the layers, and in a quarter.
RECOMPUTED_PARTS = (2, 4)
_SMALLER_STATES = ({"precision": "bf16_pure"}, {"optimizer": "adamw8bit"})
_LIGER = {"kernels.liger": "true"}
_FP16 = {"precision": "fp16"}
_FP8 = ({"precision": "fp8"}, {"precision": "fp8_pure"})


@dataclass(frozen=True)
class _Structure:
    """The words of an engine, a layout and a method; the replicas of the data and the stages that they mean."""

    words: Mapping[str, str]
    replicas: int
    stages: int

    @property
    def kind(self) -> tuple[str, ...]:
        """What an engine may lack does not depend on the sizes of degrees, but on which there are."""
        sizes = "parallelism."
        return tuple(sorted(key if key.startswith(sizes) else f"{key}={value}" for key, value in self.words.items()))

    def with_words(self, words: Mapping[str, str]) -> _Structure:
        return replace(self, words={**self.words, **words})


@dataclass(frozen=True)
class _Found:
    plan: TrainingPlan
    structure: _Structure

    @property
    def fits(self) -> bool:
        fit = fit_of(self.plan, self.plan.batch.micro)
        return certain_skip(self.plan) is None and (fit is None or fit.verdict != "no")

    @property
    def rate(self) -> float:
        return self.plan.predicted.rate if self.plan.predicted else 0.0


def options(plan_with: PlanWith[TrainingPlan], fixed: Mapping[str, str]) -> Iterator[TrainingPlan]:
    """Yield the options of a command line whose `fixed` keys are as typed; `batch.global` is the samples of a step."""
    search = _Search(plan_with, fixed)
    found = [each for structure in search.structures() for each in search.explored(structure)]
    if not found:
        raise ConfigError(f"nothing to choose from: {search.reason}")
    found += [each for fast in search.fastest(found) for each in search.other_stages(fast)]
    over_nodes = search.fastest([each for each in found if shards_of_nodes(each.plan)])
    found += [each for fast in over_nodes for each in search.in_shards(fast)]
    again = search.fastest([each for each in found if each.plan.techniques.recomputation])
    found += [each for fast in again for each in search.fewer_layers(fast)]
    found += [each for fast in search.fastest(found) if _needs_fp16(fast.plan) for each in search.in_fp16(fast)]
    takes_fp8 = search.fastest([each for each in found if _takes_fp8(each.plan)])
    found += [each for fast in search.fastest(found) for each in search.other_kernels(fast)]
    found += [each for fast in takes_fp8 for each in search.in_fp8(fast)]
    yield from {each.plan.id: each.plan for each in found}.values()


def _keys(engine: TrainingEngine) -> tuple[str, ...]:
    return (*engine.degrees, *engine.cuts)


class _Search:
    def __init__(self, plan_with: PlanWith[TrainingPlan], fixed: Mapping[str, str]) -> None:
        self._plan_with, self._fixed = plan_with, fixed
        self._unsupported: set[tuple[str, ...]] = set()

    def structures(self) -> Iterator[_Structure]:
        """Yield engines, layouts and methods."""
        for engine in [{}] if "engine" in self._fixed else [{"engine": name} for name in ENGINES]:
            base = self._plan_with(engine)
            if base is None:
                continue
            devices = base.config.hardware.devices_per_node * base.config.hardware.nodes
            for layout in layouts(base.config, _keys(training_engine(base.config)), self._fixed):
                replicas = base.config.parallelism.dp or devices // (layout.tp * layout.pp * layout.cp)
                structure = _Structure(engine | layout.words(self._fixed), replicas, layout.pp)
                yield from self._with_methods(structure, base.config.task.name, replicas * layout.cp)

    @property
    def reason(self) -> str:
        """Why the command line's own plan is no option."""
        plan = self._plan_with({})
        if plan is None:
            return "the keys that are set leave no valid plan"
        uneven = f"no whole number of passes makes a step of {self._fixed.get(GLOBAL)} samples"
        return str(plan.skip or "") or unpredicted(plan) or uneven

    def _with_methods(self, structure: _Structure, task: str, same_parameters: int) -> Iterator[_Structure]:
        if "method" in self._fixed:
            yield structure
            return
        fused = self._planned(structure.with_words({"method": "F"}), 1)
        for method in methods(task, same_parameters, fused=fused is not None):
            yield structure.with_words({"method": method})

    def explored(self, structure: _Structure) -> list[_Found]:
        """Return the batches of one structure, with smaller states where it does not fit without."""
        found = self.batches(structure)
        if not found or found[0].fits:
            return found
        if found[0].plan.techniques.adapter:
            return found
        smaller = [structure.with_words(words) for words in self._open(_SMALLER_STATES)]
        return found + [each for structure in smaller for each in self.batches(structure)]

    def fastest(self, found: Sequence[_Found]) -> list[_Found]:
        """Return the fastest that fit, of each mathematics."""
        classes = defaultdict(list)
        for each in sorted((each for each in found if each.fits), key=lambda each: each.rate, reverse=True):
            classes[tuple(changes_of(each.plan))].append(each)
        return [each for fast in classes.values() for each in fast[:TRIED_FURTHER]]

    def other_stages(self, found: _Found) -> list[_Found]:
        """Return a pipeline with other virtual stages, with every batch: there a smaller one may wait less."""
        layers, stages = layers_of(found.plan.config), found.structure.stages
        if stages == 1 or layers is None:
            return []
        open_stages = self._open([{VIRTUAL: str(size)} for size in virtual_stages(layers, stages)])
        structures = [found.structure, *(found.structure.with_words(words) for words in open_stages)]
        return [each for structure in structures for each in self.batches(structure, all_sizes=True)]

    def in_shards(self, found: _Found) -> list[_Found]:
        """Return the same with state shared out within a node, whose copies take memory and spare the network."""
        return self._with_levers(found, self._open([{SHARD: str(shards_of_nodes(found.plan))}]))

    def fewer_layers(self, found: _Found) -> list[_Found]:
        """Return the same with R in a part of the layers, which computes less and keeps more."""
        shape = shape_of(found.plan.config.model)
        if shape is None or found.structure.stages > 1:
            return []
        sizes = {max(1, shape.num_layers // part) for part in RECOMPUTED_PARTS} - {shape.num_layers}
        return self._with_levers(found, self._open([{RECOMPUTED: str(size)} for size in sorted(sizes)]))

    def other_kernels(self, found: _Found) -> list[_Found]:
        """Return the same with compilation, fused kernels and smaller states."""
        smaller = () if found.plan.techniques.adapter else _SMALLER_STATES  # an adapter's states are small
        levers = (self._open([_compiled(found)]), self._open([_LIGER]), self._open(smaller))
        return self._with_levers(found, [_joined(each) for each in _products(levers)])

    def in_fp16(self, found: _Found) -> list[_Found]:
        """Return the same in fp16 with a scaled loss, compiled or not, with fused kernels or without."""
        levers = (self._open([_compiled(found)]), self._open([_LIGER]), self._open([_FP16]))
        chosen = [_joined(each) for each in _products(levers)]
        return self._with_levers(found, [words for words in chosen if "precision" in words])

    def in_fp8(self, found: _Found) -> list[_Found]:
        """Return the same with products in fp8, compiled: else casts take longer than these products save."""
        compiled = _joined(self._open([_compiled(found)]))
        levers = (self._open([_LIGER]), self._open(_FP8))
        chosen = [compiled | _joined(each) for each in _products(levers)]
        return self._with_levers(found, [words for words in chosen if "precision" in words])

    def _with_levers(self, found: _Found, chosen: Sequence[Mapping[str, str]]) -> list[_Found]:
        return [each for words in chosen if words for each in self.batches(found.structure.with_words(words))]

    def _open(self, choices: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
        return [words for words in choices if not words.keys() & self._fixed.keys()]

    def batches(self, structure: _Structure, *, all_sizes: bool = False) -> list[_Found]:
        """Return the largest batch that fits for sure, and the next one where it may fit; else that of one sequence.

        With `all_sizes` there are the smaller powers of two too.
        """
        one = self._planned(structure, 1)
        if one is None or "batch.micro" in self._fixed or not one.fits:
            return [one] if one else []
        sure = _largest_sure(one.plan)
        sizes = [sure, 2 * sure] if sure else [1]
        if all_sizes or structure.stages > 1:
            sizes = sorted({*sizes, 1, *((1 << power for power in range(sure.bit_length())) if all_sizes else ())})
        planned = [one if size == 1 else self._planned(structure, size) for size in sizes]
        return [found for found in planned if found is not None and found.fits]

    def _planned(self, structure: _Structure, micro: int) -> _Found | None:
        """Return the plan of a batch; None where it would be skipped, but for its memory, or is not predicted."""
        passes = self._passes(structure, micro)
        if passes is None or structure.kind in self._unsupported:
            return None
        batch = {} if "batch.micro" in self._fixed else {"batch.micro": str(micro)}
        plan = self._plan_with({**structure.words, **batch, **passes})
        if plan and plan.skip and plan.skip.code is SkipCode.UNSUPPORTED:
            self._unsupported.add(structure.kind)
        return _Found(plan, structure) if plan and plan.predicted else None

    def _passes(self, structure: _Structure, micro: int) -> Mapping[str, str] | None:
        """Return the passes of a step; None where the global batch does not come out even."""
        stages, asked = structure.stages, self._fixed.get(GLOBAL)
        if "batch.accumulation" in self._fixed or (asked is None and stages == 1):
            return {}
        if asked is None:
            return {"batch.accumulation": str(PASSES_A_STAGE * stages)}
        passes, rest = divmod(int(asked), structure.replicas * micro)
        return None if rest or not passes else {"batch.accumulation": str(passes)}


def shards_of_nodes(plan: TrainingPlan) -> int:
    """Return how many ranks that hold the same parameters lie on one node, of several, as a shard; 0 for none."""
    dims, devices = plan.dims, plan.config.hardware.connected_devices
    size = devices // dims.tp
    is_cut = plan.techniques.zero_stage > 1 and "shard" in training_engine(plan.config).cuts
    spans = dims.pp == 1 and dims.world_size > devices and size > 1 and dims.dp % size == 0
    return size if is_cut and spans else 0


def _compiled(found: _Found) -> Mapping[str, str]:
    return {"method": joined(*found.plan.atom_codes, "C")}


def _needs_fp16(plan: TrainingPlan) -> bool:
    """Tell whether fp16 is all that makes products fast: cards before Ampere have no bf16."""
    peaks = plan.config.hardware.peak_flops_per_s
    return HALF not in peaks and SCALED in peaks


def _takes_fp8(plan: TrainingPlan) -> bool:
    in_fp8 = bool(training_engine(plan.config).linears) and multiplies_fp8(plan.config.hardware)
    return in_fp8 and not plan.techniques.adapter


def _joined(choices: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {key: value for words in choices for key, value in words.items()}


def _products(levers: Sequence[Sequence[Mapping[str, str]]]) -> Iterator[tuple[Mapping[str, str], ...]]:
    """Yield every choice of one or none of each lever."""
    return product(*([{}, *lever] for lever in levers))


def _largest_sure(plan: TrainingPlan) -> int:
    """Return the largest power of two that fits for sure, of no more positions than make kernels faster; 0 for none."""
    size = 1
    while (fit := fit_of(plan, size)) and fit.verdict == "yes" and size * plan.config.data.seq_len <= MOST_POSITIONS:
        size *= 2
    return size // 2
