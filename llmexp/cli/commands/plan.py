"""The command llmexp plan shows what a command line would run."""

from __future__ import annotations

from argparse import Namespace

from llmexp.answers.planned import PlannedFailures, planned_run
from llmexp.answers.versioned import line
from llmexp.cli.arguments import Parser, add_overrides, command_parser
from llmexp.cli.cluster_plan import cluster_lines
from llmexp.cli.face import planned
from llmexp.cli.failures import failure_words, failures_of
from llmexp.cli.plan_answer import budget_words, check_budget
from llmexp.cli.plan_table import plan_table
from llmexp.cli.show import plan_text
from llmexp.errors import ConfigError
from llmexp.registry import get_task
from llmexp.report.failure_words import PUBLISHED_MTBF, read_failures
from llmexp.report.training_budget import read_training_budget
from llmexp.sweep.cost import Cost
from llmexp.sweep.run import affordable, undriven_cards


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "plan",
        "Shows what a command line would run: whether it fits, how fast it is, what it costs; atoms, degrees, memory. "
        "Several runs make a table. Starts nothing, needs neither torch nor a GPU.",
    )
    add_overrides(parser)
    parser.add_argument("--json", action="store_true", help="print answers and plans as JSON, one run per line")
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="all that a run would do: atoms, degrees, steps, memory by part, native configuration, command",
    )
    parser.add_argument(
        "--for",
        dest="training_budget",
        type=read_training_budget,
        metavar="TRAINING",
        help="what a whole training would take: tokens=300e9, or epochs=3",
    )
    parser.add_argument(
        "--failures",
        type=read_failures,
        metavar="ASSUMED",
        help="with --for: simulate what failures make of that training, by mtbf_h, the mean hours between failures of "
        f"a device (or {', '.join(PUBLISHED_MTBF)}, as published), restart_s, and checkpoint_bytes_per_s of all ranks "
        "together, or checkpoint_s; every_s is the time between checkpoints, by default the best: "
        "mtbf_h=llama3,restart_s=600,checkpoint_bytes_per_s=2e12",
    )
    parser.add_argument(
        "--stages",
        type=lambda text: text.split(","),
        metavar="CARDS",
        help="simulate a pipeline of unequal cards: a name of hardware for each stage of parallelism.pp, as in "
        "rtx4090,rtx3090; says the best share of layers and its speed, over the links of hardware",
    )
    parser.add_argument(
        "--trace-memory",
        action="store_true",
        help="run a training rank's code with tensors that have no content, and count what would live in it: at real "
        "size, on this CPU, in a minute or so; needs torch",
    )
    return parser


def main(args: Namespace) -> int:
    """Print the plan or the table of plans, and for several plans also what they will cost."""
    found = planned(args)
    plans, costs = found.plans, found.costs
    if args.trace_memory:
        if args.json:
            raise ConfigError("--trace-memory prints tables: leave --json out")
        for plan in plans:
            print(get_task(plan.config.task.name).trace_memory(plan), flush=True)
        return 0
    budget = args.training_budget
    if budget:
        check_budget(plans, budget)
    failing = [failures_of(cost, budget, args.failures) for cost in costs]
    if args.json:
        if args.stages:
            raise ConfigError("--stages prints words: leave --json out")
        print(*(line(planned_run(*each)) for each in zip(costs, failing, strict=True)), sep="\n")
        return 0
    if len(costs) == 1 or args.verbose or args.stages:
        texts = [_text(args, cost, of) for cost, of in zip(costs, failing, strict=True)]
        print(*texts, sep="\n\n")
    else:
        print(plan_table(costs, budget, failing))
    print(*cluster_lines(plans, found.launcher), sep="", end="")
    if len(plans) > 1:
        print()
        affordable(plans)
    elif cards := undriven_cards(plans):
        print(f"\n{cards}")
    return 0


def _text(args: Namespace, cost: Cost, failing: PlannedFailures | None) -> str:
    task = get_task(cost.plan.config.task.name)
    return plan_text(
        cost,
        verbose=args.verbose,
        budget=budget_words(cost, args.training_budget),
        failures=failure_words(failing, args.failures, cost.plan) if failing else "",
        stages=task.unequal_stages(cost.plan, args.stages) if args.stages else "",
    )
