from __future__ import annotations

from itertools import pairwise

import pytest

from llmexp.serving.config.load import SharedPrefix
from llmexp.serving.plan.draws import DrawSeries
from llmexp.serving.plan.prompts import Prompts

VOCABULARY = 500
PROMPTS = Prompts(VOCABULARY, DrawSeries(seed=1, point=0))


def test_a_prompt_has_its_length_and_only_tokens_of_the_vocabulary() -> None:
    tokens = [token for request in range(200) for token in PROMPTS.prompt(request, 512)]
    assert len(tokens) == 200 * 512
    assert set(tokens) == set(range(VOCABULARY))


def test_all_tokens_are_equally_likely() -> None:
    small = Prompts(10, DrawSeries(1, 0))
    tokens = [token for request in range(100) for token in small.prompt(request, 1000)]
    # Chi-squared with 9 degrees of freedom: above 33.7 in one of 10,000 seeds, and the seed is fixed.
    squares = sum((tokens.count(token) - 10_000) ** 2 / 10_000 for token in range(10))
    assert squares < 33.7


def test_a_prompt_is_the_same_wherever_it_is_made_and_belongs_to_its_point() -> None:
    assert Prompts(VOCABULARY, DrawSeries(1, 0)).prompt(7, 20) == PROMPTS.prompt(7, 20)
    assert PROMPTS.prompt(7, 20) == PROMPTS.prompt(7, 30)[:20]
    others = [DrawSeries(2, 0), DrawSeries(1, 1), DrawSeries(1, 0, is_warmup=True)]
    first = [tuple(Prompts(VOCABULARY, series).prompt(0, 16)) for series in (PROMPTS.series, *others)]
    assert len({*first, tuple(PROMPTS.prompt(1, 16))}) == 5


def test_each_request_has_one_of_the_shared_prefixes_before_its_own_tokens() -> None:
    sharing = Prompts(VOCABULARY, PROMPTS.series, SharedPrefix(tokens=12, number=3))
    prompts = [sharing.prompt(request, 4) for request in range(100)]
    assert {len(prompt) for prompt in prompts} == {16}
    assert len({tuple(prompt[:12]) for prompt in prompts}) == 3
    assert [prompt[12:] for prompt in prompts] == [PROMPTS.prompt(request, 4) for request in range(100)]


def test_prefixes_of_two_points_and_of_a_warmup_have_nothing_in_common() -> None:
    prefix = SharedPrefix(tokens=12)
    series = [DrawSeries(1, 0), DrawSeries(1, 1), DrawSeries(1, 0, is_warmup=True)]
    assert len({tuple(Prompts(VOCABULARY, each, prefix).prompt(0, 1)[:12]) for each in series}) == 3


def test_a_turn_begins_with_all_that_was_said_before() -> None:
    sharing = Prompts(VOCABULARY, PROMPTS.series, SharedPrefix(tokens=5, number=2))
    outputs = [[1, 2, 3], [4]]
    turns = [sharing.turn(9, [6, 2, 8][: turn + 1], outputs[:turn]) for turn in range(3)]
    assert turns[0] == sharing.prompt(9, 6)
    for turn, (before, after) in enumerate(pairwise(turns)):
        said = [*before, *outputs[turn]]
        assert after[: len(said)] == said
        assert len(after) == len(said) + [2, 8][turn]
    assert turns[2][-8:-6] != turns[1][-2:], "new tokens of two turns differ"
    with pytest.raises(ValueError, match="2 turns cannot follow 2 outputs"):
        sharing.turn(9, [6, 2], outputs)


def test_blocks_of_the_same_id_have_the_same_tokens_whatever_stands_around_them() -> None:
    first, second = PROMPTS.of_blocks([0, 1, 2], 11, 4), PROMPTS.of_blocks([0, 1, 5], 12, 4)
    assert len(first) == 11
    assert len(second) == 12
    assert first[:8] == second[:8]
    assert first[8:] != second[8:11]
    assert PROMPTS.of_blocks([2], 4, 4)[:3] == first[8:], "a block that is cut is the beginning of the whole"
    for tokens in (8, 13):
        with pytest.raises(ValueError, match=f"{tokens} tokens are not 3 blocks of 4"):
            PROMPTS.of_blocks([0, 1, 2], tokens, 4)


def test_prompts_of_a_checkpoint_begin_as_its_tokenizer_has_it_and_have_its_words_only() -> None:
    prompts = Prompts(1000, DrawSeries(0, 0), begin=(1,), tokens=(7, 8, 9))
    found = prompts.prompt(0, 20)
    assert (len(found), found[0], set(found[1:])) == (20, 1, {7, 8, 9})
    blocks = prompts.of_blocks([3, 4], 20, 16), prompts.of_blocks([3, 5], 20, 16)
    assert blocks[0][:16] == blocks[1][:16]
    assert {prompt[0] for prompt in blocks} == {1}
    assert prompts.added(0, 1, 4)[0] in (7, 8, 9)
