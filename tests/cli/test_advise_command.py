"""What `llmexp advise` prints, and what it refuses."""

from __future__ import annotations

import pytest

from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of

CARD = ("model=7b", "hardware=rtx4090", "hardware.devices_per_node=1")


def best(out: str) -> list[str]:
    """The words of the first line, as somebody would type them."""
    first = out.splitlines()[0]
    assert first.startswith("best by ")
    return first.partition(": llmexp ")[2].split()


def test_the_best_comes_first_with_the_words_that_start_it(llmexp) -> None:
    code, out, err = llmexp("advise", *CARD, "task=finetune")
    assert (code, err) == (0, "")
    words = best(out)
    assert {*CARD} <= {*words}
    (job,) = jobs_of(run_parser().parse_intermixed_args(words))
    plan = job.plan
    assert plan.skip is None
    assert plan.techniques.adapter == "lora"
    assert "it changes the mathematics: adapters only" in out
    row = next(line for line in out.splitlines() if line.startswith("1  ") or line.startswith(" 1  "))
    assert f"{plan.predicted.rate:,.0f}"[:2] in row
    assert f"method={plan.method}" in row


def test_plain_options_change_nothing(llmexp) -> None:
    _, out, _ = llmexp("advise", *CARD, "task=finetune", "--plain")
    assert "adapters only" not in out
    assert any("O" in word.split("+") for word in best(out) if word.startswith("method="))


def test_several_hardware_stand_side_by_side(llmexp) -> None:
    words = ("model=13b", "hardware=a800,h100", "method=F+Z3,F+R+Z3", "hardware.price_per_device_hour_usd=2")
    code, out, _ = llmexp("advise", *words, "goal=tokens_per_usd", "--for", "tokens=1e9")
    assert code == 0
    assert out.startswith("best by tokens_per_usd: llmexp ")
    assert "hardware=h100" in best(out)
    for head in ("1e9 tokens", "USD", "tokens/USD"):
        assert head in out


def test_the_number_of_devices_stands_where_it_differs(llmexp) -> None:
    words = ("task=serve", "model=13b", "engine=vllm")
    several = llmexp("advise", *words, "hardware=a800")[1]
    alone = llmexp("advise", *words, "hardware=a800", "hardware.devices_per_node=1")[1]
    assert "devices  tokens/s" in several
    assert " devices " not in alone.split("tokens/s of all")[0]


def test_every_hardware_has_its_best(llmexp) -> None:
    words = ("model=7b", "hardware=rtx4090,a100,l40s", "hardware.devices_per_node=1", "task=finetune", "method=L+F+R")
    _, out, _ = llmexp("advise", *words, "goal=tokens_per_usd", "--top", "1")
    rows = [line for line in out.splitlines() if line[:1].isdigit()]
    assert len(rows) == 3
    assert {word for row in rows for word in row.split() if word.startswith("hardware=")} == {
        "hardware=rtx4090",
        "hardware=a100",
        "hardware=l40s",
    }


def test_a_machine_without_options_is_named_and_left_out(llmexp) -> None:
    words = ("model=7b", "hardware=rtx4090,a100", "hardware.devices_per_node=1", "method=F", "batch.micro=1")
    code, out, err = llmexp("advise", *words, "hardware.memory_bandwidth_bytes_per_s=null")
    assert (code, out) == (2, "")
    code, out, err = llmexp("advise", *words[:1], "hardware=cpu,a100", "method=F+Z3", "batch.micro=1")
    assert code == 0
    assert "hardware=a100" in best(out)
    assert "llmexp: left out: nothing to choose from: this processor is not measured yet" in err


def test_the_cheapest_by_the_limit_is_named_where_the_budget_buys_nothing(llmexp) -> None:
    words = ("model=7b", "hardware=h200,rtx4090", "hardware.devices_per_node=1", "task=finetune", "method=L+F+R")
    training = ("--for", "tokens=1e12")
    by_money, by_time = (
        llmexp("advise", *words, *training, limit)[2] for limit in ("budget.usd=1", "budget.device_hours=1")
    )
    usd, other_usd = (float(err.split(", ")[-1].split()[0].replace(",", "")) for err in (by_money, by_time))
    assert usd < other_usd


def test_what_bounds_the_best_is_told(llmexp) -> None:
    _, out, _ = llmexp("advise", "model=7b", "hardware=a100", "method=F+Z3", "batch.micro=1")
    assert "what bounds it: if a quarter larger: " in out


def test_as_many_rows_as_asked_for(llmexp) -> None:
    _, out, _ = llmexp("advise", *CARD, "task=finetune", "--top", "2")
    assert [line.split()[0] for line in out.splitlines() if line[:1].isdigit()] == ["1", "2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("goal=speed",), "unknown goal 'speed': choices are tokens_per_s, tokens_per_usd, time, fits"),
        (("goal=time",), "goal=time: say of which training, as in --for tokens=1e9"),
        (("--top", "0"), "--top 0: must be 1 or more"),
        (("--global-batch", "0"), "--global-batch 0: must be 1 or more"),
        (("--for", "epochs=3"), "--for epochs=3: only a run counts the data's records: write tokens="),
        (("hardware.price_per_device_hour_usd=null", "goal=tokens_per_usd"), "hardware=rtx4090 has no price: set"),
        (("--for", "tokens=1e12", "budget.usd=1"), "the budget buys no training of 1e12 tokens: the cheapest takes"),
        (("model=70b",), "nothing fits: model=70b"),
        (("method=L+F", "task=finetune", "--plain"), "every option that these words leave changes the mathematics"),
        (("task=micro",), "applies to training and serving only"),
        (("model=8b",), "model"),
    ],
)
def test_wrong_words_are_told_in_one_line(words, said, llmexp) -> None:
    code, out, err = llmexp("advise", *CARD, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1 + any(word.startswith("model=") for word in words)


def test_nothing_fits_names_what_comes_nearest(llmexp) -> None:
    _, _, err = llmexp("advise", "model=70b", "hardware=rtx4090", "hardware.devices_per_node=1")
    assert "comes nearest: needs at least 1284.8 GiB of host memory" in err


def test_a_plan_that_does_not_fit_says_what_would(llmexp) -> None:
    _, out, _ = llmexp("plan", "model=7b", "hardware=rtx4090", "method=F+Z3", "batch.micro=64")
    assert "it would be tried anyway; fits with batch.micro=" in out


def test_fp8_is_listed_with_what_it_changes_and_plain_leaves_it_out(llmexp) -> None:
    words = ("model=1b", "hardware=h100", "hardware.devices_per_node=1", "engine=torch", "method=F+C")
    _, out, _ = llmexp("advise", *words)
    _, plain, _ = llmexp("advise", *words, "--plain")
    assert any(word.startswith("precision=fp8") for word in best(out))
    assert "fp8 products" in out.splitlines()[2]
    assert "too few runs like it were held out" in out
    assert "fp8" not in plain
