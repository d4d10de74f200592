"""What to serve a model with: the options that nobody would rule out, what bounds each, and cards for a rate.

Nothing here starts a process, needs a GPU or imports torch. docs/serving.md says what is chosen from.
"""

from llmexp.serving.advice.bounds import ServingBound, bounds_of
from llmexp.serving.advice.cards import CardsForRate, cards_for_rate
from llmexp.serving.advice.changes import changes_of
from llmexp.serving.advice.options import options

__all__ = ["CardsForRate", "ServingBound", "bounds_of", "cards_for_rate", "changes_of", "options"]
