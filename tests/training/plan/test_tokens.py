import pytest

from llmexp.cli.show import plan_text
from llmexp.errors import ConfigError
from llmexp.sweep.cost import Cost

BATCH = ("data=text", "data.seq_len=256", "batch.micro=2", "batch.accumulation=4", "measure=quick")
# On the 8 GPUs of an a800 a step is 8 x 2 x 4 x 256 = 16,384 tokens.


def test_a_budget_is_rounded_up_to_whole_steps_and_the_plan_shows_it(plan):
    found = plan(*BATCH, "measure.tokens=200000")
    assert (found.config.measure.warmup_steps, found.config.measure.steps) == (5, 8)
    said = (
        "200,000 tokens / (dp 8 x micro 2 x accumulation 4 x seq_len 256 = 16,384 tokens) = 13 steps, "
        "rounded up by 12,992 tokens"
    )
    assert said in plan_text(Cost(found, None, "unknown"), verbose=True)
    assert "5 to warm up + 8 measured" in plan_text(Cost(found, None, "unknown"), verbose=True)


def test_a_multiple_is_not_rounded(plan):
    found = plan(*BATCH, "measure.tokens=163840")
    assert found.config.measure.steps == 5
    assert "16,384 tokens) = 10 steps\n" in plan_text(Cost(found, None, "unknown"), verbose=True)


@pytest.mark.parametrize("steps", ["measure.steps=3", "measure=paper"])
def test_the_budget_decides_whatever_the_protocol_says(plan, steps):
    found = plan(*BATCH, steps, "measure.tokens=1638400")
    assert found.config.measure.warmup_steps + found.config.measure.steps == 100


def test_a_larger_batch_takes_fewer_steps_for_the_same_tokens(plan):
    steps = [
        plan(*BATCH, f"parallelism.dp={dp}", "measure.tokens=1638400").config.measure.steps + 5 for dp in (8, 4, 2)
    ]
    assert steps == [100, 200, 400]


def test_without_a_budget_the_steps_are_the_protocols(plan):
    assert plan(*BATCH).config.measure.steps == 20
    assert plan(*BATCH).id != plan(*BATCH, "measure.tokens=409600").id, (
        "another question is another run, also of as many steps"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("measure.tokens=81920",),
            "= 5 steps, and measure.warmup_steps=5 leave none of them to measure: set measure.tokens=98304 or more",
        ),
        (("measure.tokens=1",), "= 1 step, rounded up by 16,383 tokens, and"),
        (("measure.tokens=0",), "measure.tokens=0: must be a whole number of at least 1"),
        (("measure.tokens=900000", "data.pack=false"), "set data.pack=true"),
        (
            ("measure.tokens=900000", "measure=adaptive"),
            "=0.01 each say where a run ends: leave all but one of them out",
        ),
        (("measure.tokens=900000", "measure.duration_s=9"), "measure.tokens=900000 and measure.duration_s=9 each say"),
        (("measure.duration_s=9", "optimizer.schedule=cosine"), "set optimizer.total_steps=<steps>, or measure.tokens"),
        (("measure.duration_s=9", "data.seq_len_schedule=[128,256]"), "measure.duration_s leaves it open"),
        (
            ("measure.duration_s=9", "engine=script", "engine.options.command='-m train'"),
            "measure.duration_s: a program of your own ends by itself",
        ),
    ],
)
def test_a_budget_that_cannot_be_is_one_line(plan, words, reason):
    with pytest.raises(ConfigError) as refused:
        plan(*BATCH, *words)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
