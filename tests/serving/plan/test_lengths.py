from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from llmexp.errors import ConfigError
from llmexp.serving.config.lengths import Lengths, OutputLengths, PromptLengths
from llmexp.serving.plan import lengths
from llmexp.serving.plan.draws import DrawSeries
from llmexp.serving.plan.lengths import LengthDraw, longest_request

SERIES, N = DrawSeries(seed=3, point=1), 20_000


def drawn(count: int = N, kind: type[Lengths] = PromptLengths, series: DrawSeries = SERIES, **words: Any) -> list[int]:
    draw = LengthDraw.of(kind.model_validate(words))
    found = [draw.at(series, request) for request in range(count)]
    assert max(found) <= draw.longest
    return found


def test_a_number_alone_is_every_length() -> None:
    assert set(drawn(50, tokens=512)) == {512}
    assert LengthDraw.of(PromptLengths(tokens=512)).longest == 512


def test_two_numbers_are_bounds_between_which_all_lengths_are_equally_likely() -> None:
    found = drawn(tokens=[3, 6])
    for length in (3, 4, 5, 6):
        # Four standard errors of a share of a quarter.
        assert found.count(length) / N == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / N) ** 0.5)
    assert len(found) == N
    assert set(found) == {3, 4, 5, 6}


def test_a_variation_makes_lengths_lognormal_with_this_mean() -> None:
    found = drawn(tokens=500, variation=0.5, limits=[1, 50_000])
    assert fmean(found) == pytest.approx(500, rel=4 * 0.5 / N**0.5)
    assert stdev(found) / fmean(found) == pytest.approx(0.5, rel=0.05)
    # The median of a lognormal distribution is mean / sqrt(1 + variation^2).
    assert sorted(found)[N // 2] == pytest.approx(500 / 1.25**0.5, rel=0.02)


def test_what_limits_cut_off_makes_no_heap_at_them_and_moves_the_mean_as_said() -> None:
    section = PromptLengths(tokens=500, variation=1.0, limits=(100, 800))
    found = drawn(tokens=500, variation=1.0, limits=[100, 800])
    assert min(found) == 100
    assert max(found) == 800
    assert max(found.count(100), found.count(800)) < 3 * found.count(300)
    mean = LengthDraw.of(section).distribution.mean
    assert fmean(found) == pytest.approx(mean, abs=4 * stdev(found) / N**0.5)
    assert mean < 400


@pytest.mark.parametrize("variation", [1e-6, 1000.0])
def test_the_narrowest_and_the_widest_distribution_stay_within_limits(variation: float) -> None:
    found = drawn(500, tokens=10, variation=variation, limits=[10, 11])
    assert set(found) <= {10, 11}


def test_a_length_depends_on_its_request_and_not_on_how_many_are_drawn() -> None:
    draw = LengthDraw.of(PromptLengths(tokens=(1, 10**6)))
    forwards = [draw.at(SERIES, request) for request in range(100)]
    assert [draw.at(SERIES, request) for request in reversed(range(100))] == forwards[::-1]
    assert drawn(100, tokens=[1, 10**6]) == forwards
    assert drawn(100, series=DrawSeries(3, 2), tokens=[1, 10**6]) != forwards
    assert drawn(100, series=DrawSeries(4, 1), tokens=[1, 10**6]) != forwards
    assert [draw.at(SERIES, request, turn=1) for request in range(100)] != forwards


def test_prompts_and_outputs_of_the_same_distribution_differ() -> None:
    assert drawn(100, tokens=[1, 1000]) != drawn(100, OutputLengths, tokens=[1, 1000])


def test_lengths_of_a_file_are_all_drawn_and_rows_of_two_files_stay_together(tmp_path: Path) -> None:
    prompts, outputs = tmp_path / "prompts.txt", tmp_path / "outputs.txt"
    prompts.write_text("10\n20\n\n30\r\n")
    outputs.write_text("1\n2\n3")
    found = drawn(300, tokens=str(prompts))
    assert set(found) == {10, 20, 30}
    assert [prompt // 10 for prompt in found] == drawn(300, OutputLengths, tokens=str(outputs))
    draw = LengthDraw.of(PromptLengths(tokens=str(prompts)))
    assert (draw.longest, draw.distribution.mean) == (30, 20)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10\n\n2x\n", r"p\.txt:3: expected one length, a whole number above 0, not '2x'$"),
        ("10\n0\n", r"p\.txt:2: expected one length, a whole number above 0, not '0'$"),
        ("-4\n", r"p\.txt:1: expected one length"),
        ("\n \n", r"p\.txt has no lengths: write one in each line, in tokens$"),
        ("1\n2\n3\n4\n", r"p\.txt has more than 3 lengths$"),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lengths, "MOST_LISTED", 3)
    (tmp_path / "p.txt").write_text(text)
    with pytest.raises(ConfigError, match=rf"^serve\.prompt\.tokens: .*{said}"):
        drawn(1, tokens=str(tmp_path / "p.txt"))


def test_a_word_that_is_no_file_is_told_what_it_may_be() -> None:
    with pytest.raises(ConfigError, match=r"^serve\.output\.tokens=5l2: must be a whole number .* no such file$"):
        LengthDraw.of(OutputLengths(tokens="5l2"))


def test_what_does_not_fit_the_model_is_one_line_with_its_arithmetic() -> None:
    assert longest_request(prompt=512, output=512, positions=1024) == 1024
    assert longest_request(prompt=100, output=20, positions=500, prefix=16, turns=3) == 376
    with pytest.raises(ConfigError, match=r"prompt 512 \+ output 513 = 1025 tokens are more than .*=1024: make"):
        longest_request(prompt=512, output=513, positions=1024)
    with pytest.raises(ConfigError, match=r"serve\.prefix 16 \+ 3 turns x \(prompt 100 \+ output 20\) = 376 tokens"):
        longest_request(prompt=100, output=20, positions=375, prefix=16, turns=3)
