"""`llmexp plan --failures` simulates a whole training with failures, and says what it goes by."""

from __future__ import annotations

import json
import re

import pytest

from llmexp import plan
from llmexp.errors import ConfigError
from llmexp.report.failure_words import PUBLISHED_MTBF

LARGE = ("model=70b", "hardware=h100", "hardware.nodes=256", "engine=megatron", "method=F")
LARGE += ("parallelism.tp=8", "parallelism.pp=8", "data.seq_len=4096", "batch.accumulation=32")
TRAINING = ("--for", "tokens=15e12")
ASSUMED = "mtbf_h=llama3,restart_s=600,checkpoint_bytes_per_s=2e12"


def told(llmexp, *words):
    code, out, err = llmexp("plan", *words)
    assert (code, err) == (0, "")
    return out


def test_a_plan_says_what_failures_make_of_a_training(llmexp):
    out = told(llmexp, *LARGE, *TRAINING, "--failures", ASSUMED)
    share, low, high = map(float, re.search(r"simulated: (\S+) % of the time counts \((\S+) to (\S+) in", out).groups())
    assert 80 < low < share < high < 100
    # 50,676 hours / 2,048 devices, and 70e9 parameters of 2 bytes with a copy and two moments of 4.
    assert "a failure every 1 d 1 h (50,700 device-hours: 419 unexpected interruptions in 54 days" in out
    assert "checkpoint of 966 GB in 0.48 s every " in out
    assert "(best by Daly), restart in 10 min" in out


def test_programs_get_the_same_with_units(llmexp):
    answer = json.loads(told(llmexp, *LARGE, *TRAINING, "--failures", ASSUMED, "--json"))
    found, rate = answer["failures"], answer["plan"]["predicted"]["rate"]
    assert found["evidence"] == "simulated"
    assert found["mtbf_s"] == pytest.approx(PUBLISHED_MTBF["llama3"][0] * 3600 / 2048)
    assert found["tokens_per_s"] == pytest.approx(rate * found["useful_share"])
    assert found["time_s"] == pytest.approx(15e12 / rate / found["useful_share"])
    shares = [found[name] for name in ("useful_share", "checkpoint_share", "lost_share", "restart_share")]
    assert sum(shares) == pytest.approx(1.0)
    assert found["failures"] == pytest.approx(found["time_s"] / found["mtbf_s"], rel=0.1)


def test_python_gets_the_same(llmexp):
    words = ("model=7b", "hardware=a800", "method=F+Z3")
    answer = json.loads(told(llmexp, *words, *TRAINING, "--failures", ASSUMED, "--json"))
    (found,) = plan(*words, training=TRAINING[1], failures=ASSUMED)
    assert found.failures is not None
    assert found.failures.model_dump(mode="json") == answer["failures"]
    assert plan(*words)[0].failures is None
    with pytest.raises(ConfigError, match="--failures: says nothing without a training"):
        plan(*words, failures=ASSUMED)
    with pytest.raises(ConfigError, match="--failures mtbf=3: unknown key 'mtbf'"):
        plan(*words, training=TRAINING[1], failures="mtbf=3")
    with pytest.raises(ConfigError, match="tokens=many"):
        plan(*words, training="tokens=many")


def test_without_failures_a_program_gets_null(llmexp):
    assert json.loads(told(llmexp, "model=7b", "hardware=a800", "method=F+Z3", "--json"))["failures"] is None


def test_a_checkpoint_holds_the_state_of_what_trains_once(llmexp):
    def size(*words):
        answer = told(llmexp, "model=7b", "hardware=a800", *words, *TRAINING, "--failures", ASSUMED, "--json")
        return json.loads(answer)["failures"]["checkpoint_bytes"] / json.loads(answer)["plan"]["trainable_parameters"]

    # DeepSpeed updates a copy of the parameters, also where both are bf16.
    assert size("method=Z3", "precision=bf16_pure") == 2 + 2 + 2 * 2
    assert size("method=Z3", "precision=bf16_mixed") == 2 + 4 + 2 * 4
    assert size("method=Z3", "engine=torch", "precision=bf16_pure") == 2 + 2 * 2
    assert size("task=finetune", "method=L+Z3", "precision=bf16_mixed") == 2 + 4 + 2 * 4


def test_a_checkpoint_more_often_than_the_best_costs_more(llmexp):
    def share(every):
        answer = told(llmexp, *LARGE, *TRAINING, "--failures", f"{ASSUMED}{every}", "--json")
        return json.loads(answer)["failures"]["useful_share"]

    assert share(",every_s=2") < 0.9 < share("")
    assert share(",every_s=80000") < 0.7


def test_a_table_has_the_share_that_counts_and_the_time_with_failures(llmexp):
    words = ("model=7b", "hardware=rtx4090", "method=Z3", "data.seq_len=350", "batch.micro=1,2", "--for", "tokens=1e9")
    out = told(llmexp, *words, "--failures", "mtbf_h=8,restart_s=1800,checkpoint_s=60,every_s=600")
    header, _, first = out.splitlines()[:3]
    assert header.split()[-1] == "counts"
    assert re.search(r"\d\d\.\d %$", first)
    assert "counts: simulated share of the training's time that counts" in out
    assert told(llmexp, *words).splitlines()[2].split()[-1] != first.split()[-1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mtbf=3", "unknown key 'mtbf': did you mean mtbf_h?"),
        ("mtbf_h=3,checkpoint_s=1", "without restart_s, which nobody can guess"),
        ("restart_s=600,checkpoint_s=1", "without mtbf_h"),
        ("mtbf_h=3,restart_s=1", "takes either checkpoint_bytes_per_s"),
        ("mtbf_h=3,restart_s=1,checkpoint_s=1,checkpoint_bytes_per_s=1", "takes either checkpoint_bytes_per_s"),
        ("mtbf_h=often,restart_s=1,checkpoint_s=1", "mtbf_h='often' is not a number or one of llama3"),
        ("mtbf_h=3,restart_s=0,checkpoint_s=1", "restart_s must be a finite number above 0"),
        ("mtbf_h=inf,restart_s=1,checkpoint_s=1", "mtbf_h must be a finite number above 0"),
        ("mtbf_h=0.01,restart_s=600,checkpoint_s=1", "would get nowhere: less than 1% of the time counts"),
    ],
)
def test_assumptions_that_cannot_be_are_one_line(given, said, llmexp):
    code, out, err = llmexp("plan", "model=7b", "hardware=a800", "method=Z3", *TRAINING, "--failures", given)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_failures_of_no_training_are_one_line(llmexp):
    code, _, err = llmexp("plan", "model=7b", "hardware=a800", "--failures", ASSUMED)
    assert (code, err.count("\n")) == (2, 1)
    assert "says nothing without a training: add --for" in err
