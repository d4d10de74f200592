import random
from statistics import fmean

import pytest

from llmexp.analysis.contention import Machine
from llmexp.analysis.stability import drift, interval, judge, warmup_change
from llmexp.record.result import Stability
from llmexp.training.metrics import tokens_per_s
from llmexp.training.repeats import RunConstants, read_training
from llmexp.training.task import PRETRAIN

QUIET = Machine([({"cpu_other_cores": 0.02}, 5.0)], cores=2, wanted_cores=2)
CONTENDED = Machine([({"cpu_other_cores": 0.9, "load_average_1m": 3.2}, 5.0)], cores=2, wanted_cores=2)
ONE = RunConstants(world_size=1, dp=1)


def words(found: Stability) -> list[str]:
    return [doubt.words for doubt in found.reasons]


@pytest.fixture
def repeat_of(write_repeat):
    """A repeat of one rank from the seconds of its warm-up steps and of its measured ones."""
    made = iter(range(100))

    def make(times_s, warmup_s=(9.0, 1.0, 1.0, 1.0, 1.0)):
        steps = [(seconds, 10, 10, 1.0) for seconds in (*warmup_s, *times_s)]
        folder = write_repeat(next(made), {0: {"window_wall_s": sum(times_s)}}, {0: steps}, warmup=len(warmup_s))
        return read_training(folder, 1)

    return make


def judged(*repeats, machine=QUIET):
    return judge(
        repeats, [tokens_per_s(repeat, ONE) for repeat in repeats], [machine], "tokens_per_s", PRETRAIN.doubts(repeats)
    )


def scattered(level_s=1.0, scatter=0.02, count=60, seed=0):
    draw = random.Random(seed)
    return [level_s * draw.gauss(1, scatter) for _ in range(count)]


ALONE = "one repeat is one process, so how much processes differ is unknown: set measure.repeats=3"


@pytest.mark.parametrize("seed", range(20))
def test_steady_repeats_are_stable_with_an_interval_around_their_rate(repeat_of, seed):
    times_s = [scattered(seed=3 * seed + repeat) for repeat in range(3)]
    found = judged(*map(repeat_of, times_s))
    assert (found.verdict, words(found), found.source) == ("stable", [], "repeats")
    assert found.low < 600 / fmean(map(sum, times_s)) < found.high
    assert found.high - found.low < 0.5
    assert found.other_cores == 0.02


def test_one_process_does_not_say_how_far_the_next_would_be_however_steady_its_steps(repeat_of):
    times_s = scattered()
    found = judged(repeat_of(times_s))
    assert (found.verdict, words(found), found.source) == ("unknown", [ALONE], "steps")
    assert found.low < 600 / sum(times_s) < found.high


def test_a_drift_is_told_with_its_ratio(repeat_of):
    times_s = [
        level * scatter for level, scatter in zip([1 + 0.2 * n / 59 for n in range(60)], scattered(), strict=True)
    ]
    found = judged(repeat_of(times_s))
    assert found.verdict == "unstable"
    assert found.drift_ratio == pytest.approx(1.13, abs=0.02)
    assert words(found) == [
        f"drift: steps of the window's last third took {found.drift_ratio:.2f} times those of its first"
    ]


def test_a_drift_of_one_repeat_among_steady_ones_counts(repeat_of):
    drifting = [1.0] * 20 + [1.05] * 20 + [1.1] * 20
    found = judged(repeat_of([1.05] * 60), repeat_of(drifting), repeat_of([1.05] * 60))
    assert [reason.partition(":")[0] for reason in words(found)] == ["drift"]
    assert found.drift_ratio == pytest.approx(1.1, abs=0.03)


def test_compiling_inside_the_window_is_told_however_steady_the_steps(write_repeat):
    steps = [(1.0, 10, 10, 1.0)] * 60
    found = [
        read_training(write_repeat(n, {0: {"window_wall_s": 55.0, "compiled_in_window": n}}, {0: steps}, warmup=5), 1)
        for n in (0, 1)
    ]
    assert judged(found[0], found[0]).verdict == "stable"
    assert words(judged(*found)) == ["compilation: torch.compile made 1 graph inside the measured window"]


def test_a_difference_that_scatter_explains_is_no_drift_and_hides_one(repeat_of):
    times_s = [1.0, 1.5] * 10 + [1.5, 1.0, 1.5] * 4
    assert drift([repeat_of(times_s)]).ratio > 1.05
    found = judged(repeat_of(times_s))
    assert found.verdict == "unknown"
    assert "steps scatter so much that a drift of 10% would not show: measure more steps" in words(found)


def test_a_small_drift_is_not_relevant_however_sure(repeat_of):
    repeats = [repeat_of([1.0 + 0.0004 * step for step in range(60)]) for _ in range(2)]
    assert drift(repeats).differs(0.999)
    assert judged(*repeats).verdict == "stable"


def test_noise_is_told_with_its_interval(repeat_of):
    found = judged(repeat_of(scattered(scatter=0.4, count=24, seed=3)))
    assert found.verdict == "unknown"
    share = (found.high - found.low) / 2 / 10
    assert share > 0.05
    assert any(
        reason.startswith("noise: the 95 % interval of tokens/s is ± ") and "6 batches of steps" in reason
        for reason in words(found)
    )


def test_repeats_that_differ_are_not_known_though_each_is_steady_and_more_would_tell(repeat_of):
    found = judged(
        *(repeat_of(scattered(level_s, seed=n), warmup_s=[level_s] * 5) for n, level_s in enumerate((1.0, 1.03, 1.06)))
    )
    assert (found.verdict, found.source) == ("unknown", "repeats")
    assert "from 3 repeats: about 4 would make it less than 5%" in words(found)[0]
    apart = judged(
        *(repeat_of(scattered(level_s, seed=n), warmup_s=[level_s] * 5) for n, level_s in enumerate((1.0, 1.5, 2.0)))
    )
    assert "from 3 repeats: find what makes them differ so much" in words(apart)[0]


def test_repeats_that_agree_give_an_interval_by_students_t(repeat_of):
    repeats = [repeat_of([level_s] * 20) for level_s in (1.0, 1.01, 1.02)]
    found = interval([tokens_per_s(repeat, ONE) for repeat in repeats])
    assert (found.source, found.count) == ("repeats", 3)
    # t of 2 degrees of freedom x s / sqrt(3), s = 0.098.
    assert found.half_width == pytest.approx(4.303 * 0.098 / 3**0.5, rel=0.01)


def test_a_warm_up_that_has_not_settled_is_told(repeat_of):
    found = judged(repeat_of([1.0] * 20, warmup_s=(9.0, 3.0, 1.3, 1.2, 1.1)))
    assert found.verdict == "unstable"
    assert words(found) == ["warm-up not settled: its last steps took 1.20 times those of the window"]


def test_a_warm_up_longer_than_the_window_is_held_against_it_by_pieces_of_the_windows_length(repeat_of):
    found = warmup_change([repeat_of([1.0] * 20, warmup_s=(9.0, *[1.3] * 100))])
    assert found.ratio == pytest.approx(1.3)
    assert found.freedom == 2


def test_steps_profiled_after_the_window_are_no_warm_up(write_repeat, write_samples):
    folder = write_repeat(0, {0: {}}, {})
    write_samples(
        folder, 0, [(seconds, 1.0) for seconds in [9.0, *[1.0] * 24, *[7.0] * 5]], warmup={*range(5), *range(25, 30)}
    )
    assert warmup_change([read_training(folder, 1)]).ratio == pytest.approx(1)


def test_a_host_that_holds_the_device_up_between_steps_is_told(write_repeat):
    steps = [(9.0, 10, 10, 1.0), *[(1.0, 10, 10, 1.0)] * 24]
    # 20 s of steps in windows of 20.8 and 25 s.
    repeats = [
        read_training(write_repeat(k, {0: {"window_wall_s": wall_s}}, {0: steps}, warmup=5), 1)
        for k, wall_s in enumerate((20.8, 25.0))
    ]
    assert judged(repeats[0], repeats[0]).verdict == "stable"
    found = judged(repeats[1])
    assert found.verdict == "unstable"
    assert words(found) == [
        "host between steps: only 80.0 % of the window was inside steps, between them the device waited for the host"
    ]
    assert words(judged(*repeats))[0] == words(found)[0]


def test_contention_is_told_even_of_a_run_too_short_to_judge(repeat_of):
    assert judged(repeat_of([1.0] * 2), machine=CONTENDED).verdict == "unstable"
    steady = judged(repeat_of([1.0] * 60), machine=CONTENDED)
    assert words(steady) == [
        "contention: other processes took 0.90 of 2 cores while the ranks compute with 2 (highest load average 3.2)"
    ]


def test_too_few_steps_leave_the_verdict_open(repeat_of):
    short = judged(repeat_of([1.0] * 2, warmup_s=(9.0,)))
    assert (short.verdict, short.low, short.drift_ratio) == ("unknown", None, None)
    assert words(short) == ["too few steps to judge: 2 in the window, 18 are needed"]
    cold = judged(repeat_of([1.0] * 20, warmup_s=(9.0, 1.0)))
    assert (cold.verdict, words(cold)) == ("unknown", ["warm-up too short to judge: 4 steps are needed"])


def test_sequences_that_grow_are_no_drift_and_leave_the_verdict_open(write_repeat):
    times_s = [1.0] * 20 + [2.0] * 20
    sizes = [10] * 20 + [20] * 20
    steps = [(1.0, 10, 10, 1.0)] * 5 + [
        (seconds, size, size, 1.0) for seconds, size in zip(times_s, sizes, strict=True)
    ]
    folder = write_repeat(0, {0: {"window_wall_s": sum(times_s)}}, {0: steps}, warmup=5)
    found = judged(read_training(folder, 1))
    assert (found.verdict, found.drift_ratio, found.warmup_ratio, found.low) == ("unknown", None, None, None)
    assert words(found) == ["sequences grew from step to step, so their times cannot be compared"]
