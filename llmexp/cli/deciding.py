"""The runs that decide between options: named with their cost, measured, and what that changed."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace

from llmexp.advice.option import Option
from llmexp.advice.ranking import Ranking
from llmexp.cli.advised import Asked, advised
from llmexp.cli.face import planned
from llmexp.cli.overrides import as_typed
from llmexp.cli.run import main as measure
from llmexp.errors import ConfigError
from llmexp.launch.detect import detect
from llmexp.launch.preflight import other_hardware
from llmexp.record.digits import rounded
from llmexp.schema import MeasureConfig
from llmexp.sweep.cost import cost_line
from llmexp.sweep.measuring import folder_of

# As many as are measured by the whole protocol; of more, the better half goes on after fewer steps. Three left out the
# best one too often (docs/results/advice-here.md).
FINALISTS = 4
_LEAST_STEPS = 2
_UNMEASURED = {True: "its run gave no speed", False: "not measured"}
_IN_TURNS = "measure.order=interleaved"


def deciding_lines(ranking: Ranking, words: Sequence[str]) -> Iterator[str]:
    """Name the runs that tell apart what predictions cannot, their cost, and the command that measures them."""
    chosen = ranking.deciding(FINALISTS)
    if not chosen:
        return
    several = f"{len(chosen)} runs decide" if len(chosen) > 1 else "a run decides"
    yield f"predictions cannot tell the first {len(ranking.undecided)} apart; {several} between the most promising:"
    yield f"  llmexp advise {shlex.join(words)} --run {len(chosen)}"
    yield cost_line([option.cost for option in chosen])


def in_turns(ranking: Ranking, words: Sequence[str]) -> list[str]:
    """Return the word with which repeats of the options take turns, where there are any to take."""
    config = ranking.first.plan.config if ranking.first else None
    typed = any(word.startswith("measure.order=") for word in as_typed(words))
    several = config and config.measure.repeats > 1 and config.hardware.nodes == 1
    return [_IN_TURNS] if several and not typed else []


def decide(args: Namespace, asked: Asked, ranking: Ranking, count: int) -> tuple[Ranking, int]:
    """Measure undecided options, print what that tells, and rank again; returns the exit code of the runs too.

    Raises ConfigError before anything starts.
    """
    chosen = ranking.deciding(count)
    if not chosen:
        print("nothing to measure: what is known already tells the best one from the others", end="\n\n")
        return ranking, 0
    _check_machine(chosen[0], args.overrides)
    halving = _Halving(args)
    measured = halving.measured(chosen)
    after = advised(args, asked, measured)
    print("", *_changes(chosen, measured), _comparison(ranking, after), "", sep="\n")
    return after, halving.code


def _check_machine(option: Option, words: Sequence[str]) -> None:
    """Raise ConfigError where another machine would have to measure, and no launcher is named that reaches it."""
    elsewhere = other_hardware(option.plan, detect())
    if elsewhere and not any(word.startswith("hydra/launcher=") for word in as_typed(words)):
        raise ConfigError(f"--run: {elsewhere}: type it there, or name a launcher, as in hydra/launcher=slurm")


class _Halving:
    """Successive halving: all options with few steps, the better half with more, the last ones by the protocol."""

    def __init__(self, args: Namespace) -> None:
        """Start with the exit code of runs that all have an answer."""
        self._args, self.code = args, 0

    def measured(self, chosen: Sequence[Option]) -> list[Option]:
        """Return all options as they are known afterwards."""
        left, out = list(chosen), list[Option]()
        while len(left) > FINALISTS:
            short = self._sweep(left, _few_steps(left[0].plan.config.measure, len(left)))
            pairs = sorted(zip(left, short, strict=True), key=lambda pair: -pair[1].rate * pair[1].measured)
            kept = [option for option, known in pairs if known.measured][: max(FINALISTS, (len(left) + 1) // 2)]
            out += [_known(option, known) for option, known in pairs if option not in kept]
            left = kept
        return out + [_known(option, known) for option, known in zip(left, self._sweep(left), strict=True)]

    def _sweep(self, options: Sequence[Option], protocol: Sequence[str] = ()) -> list[Option]:
        """Measure options as one sweep, and return them as they are known then."""
        if not options:
            return []
        words = [*sweep_words(self._args.overrides, [option.plan.overrides for option in options]), *protocol]
        print(f"llmexp {shlex.join(words)}", flush=True)
        folder = self._args.config_dir
        self.code = max(self.code, measure([*words, *(["--config-dir", folder] if folder else [])]))
        return [Option(cost) for cost in planned(Namespace(overrides=words, config_dir=folder)).costs]


def _few_steps(protocol: MeasureConfig, options: int) -> list[str]:
    """Return the words of a shorter protocol, with which so many options take as long as the finalists."""
    counts = {key: getattr(protocol, key, None) for key in ("warmup_steps", "steps")}
    steps = {key: max(_LEAST_STEPS, count * FINALISTS // options) for key, count in counts.items() if count}
    counted = [f"measure.{key}={count}" for key, count in steps.items()]
    ends = ("tokens", "duration_s", "stop_at_interval_share")
    whole = [f"measure.{key}=null" for key in ends if getattr(protocol, key, None)]
    return ["measure.repeats=1", *counted, *whole]


def _known(option: Option, ran: Option) -> Option:
    """Return an option with the speed of its run, or as one whose run ended without; unchanged where none ended."""
    if ran.measured:
        return Option(replace(option.cost, speed=ran.cost.speed, source="nothing"))
    return Option(option.cost, failed=folder_of(ran.plan).result_path.exists())


def sweep_words(typed: Sequence[str], options: Sequence[Sequence[str]]) -> list[str]:
    """Return the words of one sweep of the options: what was typed, and a cell of what each has besides."""
    own = [[word for word in words if word not in typed and not word.startswith("hydra")] for words in options]
    pairs = [dict(word.split("=", 1) for word in words) for words in own]
    keys = {key for cell in pairs for key in cell}
    shared = [word for word in typed if word.lstrip("+").partition("=")[0] not in keys]
    cells = ",".join("{" + ",".join(f"{key}:{value}" for key, value in cell.items()) + "}" for cell in pairs)
    return [*shared, f"hydra.sweeper.cells=[{cells}]"]


def _changes(before: Sequence[Option], after: Sequence[Option]) -> Iterator[str]:
    """Say what each run was measured at, beside what was predicted."""
    known = {option.plan.id: option for option in after}
    shared = set.intersection(*(set(option.plan.overrides) for option in before)) if len(before) > 1 else set()
    for option in before:
        now = known[option.plan.id]
        words = " ".join(word for word in option.plan.overrides if word not in shared)
        low, high = (rounded(end) for end in option.interval)
        told = f"measured {rounded(now.rate)} tokens/s" if now.measured else _UNMEASURED[now.failed]
        yield f"{words}: {told}; predicted were {rounded(option.rate)}, {low} to {high}"


def _comparison(before: Ranking, after: Ranking) -> str:
    first, now = before.first, after.first
    assert first is not None
    assert now is not None
    if first.plan.id == now.plan.id:
        return "the best one stays"
    return f"another one is best now: before it was {' '.join(first.plan.overrides)}"
