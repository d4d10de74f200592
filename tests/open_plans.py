"""Open plans as `llmexp advise` makes them."""

from __future__ import annotations

from llmexp.cli.arguments import run_parser
from llmexp.cli.open_plans import OpenPlans, open_plans


def open_plans_of(*words: str) -> OpenPlans:
    """Of the only run that the words describe."""
    (found,) = open_plans(run_parser().parse_intermixed_args(list(words)))
    return found
