"""The token ids of prompts: random, and the same wherever they are made.

Every token of the vocabulary is equally likely. Load points, and the warm-ups before them, share no prompt and no
prefix, so that a server's prefix cache helps only where requests were asked to share something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.serving.config.load import SharedPrefix
from llmexp.serving.plan.draws import DrawSeries, scaled


@dataclass(frozen=True)
class Prompts:
    """The prompts of one series of requests, by request number."""

    vocab_size: int
    series: DrawSeries
    prefix: SharedPrefix | None = None
    begin: Sequence[int] = ()
    """Tokens with which every prompt begins, of a served checkpoint's tokenizer; they count as the prompt's own."""
    tokens: Sequence[int] | None = None
    """Those that are drawn; None: all of the vocabulary."""

    def prompt(self, request: int, tokens: int) -> list[int]:
        """Return a request's prompt: the shared prefix, where there is one, and so many tokens of its own."""
        return self.turn(request, [tokens], [])

    def turn(self, conversation: int, tokens: Sequence[int], outputs: Sequence[Sequence[int]]) -> list[int]:
        """Return the prompt of a conversation's next turn: all prompts and outputs until now, and new tokens.

        `tokens` says how many new tokens each turn has, up to this one; `outputs` are the ids of the earlier answers,
        as the server gave them. Raises ValueError where the two do not belong together.
        """
        if len(tokens) != len(outputs) + 1:
            raise ValueError(f"{len(tokens)} turns cannot follow {len(outputs)} outputs")
        found: list[int] = []
        for turn, count in enumerate(tokens):
            found += self.added(conversation, turn, count)
            if turn < len(outputs):
                found += outputs[turn]
        return found

    def added(self, conversation: int, turn: int, tokens: int) -> list[int]:
        """Return what a turn adds to what was said: new tokens, and before those of the first turn the prefix."""
        if turn:
            return self._drawn("prompt", (conversation, turn), tokens)
        drawn = self._drawn("prompt", (conversation, turn), max(0, tokens - len(self.begin)))
        return [*self.begin, *self._prefix(conversation), *drawn]

    def of_blocks(self, hash_ids: Sequence[int], tokens: int, block_tokens: int) -> list[int]:
        """Return a prompt of so many tokens made of blocks, of which those with the same id have the same tokens.

        The last block may be shorter. Raises ValueError where the blocks are too many or too few.
        """
        if -(-tokens // block_tokens) != len(hash_ids):
            raise ValueError(f"{tokens} tokens are not {len(hash_ids)} blocks of {block_tokens}")
        lengths = [min(block_tokens, tokens - begin) for begin in range(0, tokens, block_tokens)]
        blocks = zip(hash_ids, lengths, strict=True)
        drawn = [token for block, length in blocks for token in self._drawn("block", (block,), length)]
        return [*self.begin, *drawn[len(self.begin) :]]

    def _prefix(self, conversation: int) -> list[int]:
        if self.prefix is None:
            return []
        which = self.series.below(self.prefix.number, "which prefix", (conversation,))
        return self._drawn("prefix", (which,), self.prefix.tokens)

    def _drawn(self, purpose: str, place: tuple[int, ...], count: int) -> list[int]:
        numbers = self.series.numbers(purpose, place, count)
        if self.tokens is None:
            return scaled(numbers, self.vocab_size)
        return [self.tokens[number] for number in scaled(numbers, len(self.tokens))]
