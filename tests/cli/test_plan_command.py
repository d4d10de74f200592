"""What `llmexp plan` prints: the answer first, a table for several runs, and what a whole training would take."""

from __future__ import annotations

import json
import re

import pytest

PAPER = ("model=7b", "hardware=a800", "precision=bf16_pure", "data.seq_len=350")


def test_one_runs_plan_begins_with_the_answer(llmexp):
    code, out, _ = llmexp("plan", "method=F", "optimizer=adamw_cpuadam", *PAPER)
    _, fits, speed, predicted, *facts = lines = out.splitlines()
    assert code == 0
    assert fits.startswith("  fits       yes (needs 51.")
    assert fits.endswith(" of 80 GiB a device)")
    # 7,694.1 tokens/s on 8 GPUs, table III
    assert "about 962 tokens/s a GPU, by the paper's cell on 8 x a800 (table III, batch 1, 350 tokens)" in speed
    found = re.fullmatch(
        r"  predicted  (\d+) tokens/s a GPU \((\d+) to ([\d,]+) in 9 of 10\), by runs on .*", predicted
    )
    rate, low, high = (int(number.replace(",", "")) for number in found.groups())
    assert low < 962 < high
    assert low < rate < high
    assert [line.split()[0] for line in facts] == ["batch", "more"]
    assert len(lines) == 6


def test_a_prediction_stands_in_the_place_of_the_papers_cell_of_another_batch(llmexp):
    words = ("method=F", "batch.micro=6", "parallelism.dp=1", *PAPER)
    _, out, _ = llmexp("plan", *words)
    assert "  speed " not in out
    assert "predicted" in out
    assert json.loads(llmexp("plan", "--json", *words)[1])["speed"]["elsewhere"]


def test_the_papers_cell_with_the_nearest_batch_is_named_where_nothing_is_predicted(llmexp):
    _, out, _ = llmexp(
        "plan", "method=F", "batch.micro=6", "parallelism.dp=1", "hardware.memory_bandwidth_bytes_per_s=null", *PAPER
    )
    # 25,872.3 tokens/s on 8 GPUs, table IV
    assert "predicted" not in out
    assert "about 3,230 tokens/s a GPU, by the paper's cell on 8 x a800 (table IV, batch 8, 350 tokens)" in out


@pytest.mark.parametrize(
    ("changed", "speeds"),
    [
        # 1,449.5 tokens/s on 8 GPUs, table IX, batch 1; it has no other batch and no other length.
        ("batch.micro=1,2,4", ["181", "", ""]),
        ("data.seq_len=128,350,512", ["", "181", ""]),
        ("parallelism.dp=1,8", ["", "181"]),
        ("adapter.rank=8,64", ["", "181"]),
        ("batch.accumulation=1,2", ["181", ""]),
    ],
)
def test_a_table_has_the_papers_speed_only_beside_the_run_that_the_paper_measured(changed, speeds, llmexp):
    words = ("task=finetune", "method=QL", "model=13b", "hardware=rtx4090", "precision=bf16_pure")
    length = () if "seq_len" in changed else ("data.seq_len=350",)
    _, out, _ = llmexp("plan", *words, *length, changed, "--for", "tokens=1e9")
    header, _, *lines = out.split("\n\n")[0].splitlines()
    place = header.index("tokens/s")
    assert [line[place : place + len("tokens/s")].strip() for line in lines] == speeds
    assert all(line[header.index("1e9 tokens") :][: len("1e9 tokens")].strip() for line in lines)
    assert "tokens/s of a device: by the paper's cell on 8 x rtx4090\n" in out


def test_the_engines_configuration_and_the_command_are_for_those_who_ask(llmexp):
    words = ("method=Z3", *PAPER)
    assert '"stage": 3' in llmexp("plan", "--verbose", *words)[1]
    assert "llmexp.launch.ranks" not in llmexp("plan", *words)[1]


def test_an_estimate_that_says_no_is_told_from_state_that_cannot_fit(llmexp):
    estimated = llmexp("plan", "method=Z3", "batch.micro=64", *PAPER)[1]
    certain = llmexp("plan", "model=13b", "hardware=rtx4090")[1]
    assert "fits       no (" in estimated
    assert "it would be tried anyway" in estimated
    assert "skipped" not in estimated
    assert "state alone is more" in certain
    assert "skipped    needs" in certain


def test_a_sweeps_plan_is_a_table_of_one_line_a_run_below_100_columns(llmexp):
    code, out, _ = llmexp("plan", "experiment=paper_table03", "hardware=rtx4090")
    table, rest = out.split("\n\n")[:2]
    header, _, *rows = table.splitlines()
    assert code == 0
    assert header.split()[:4] == ["#", "model", "method", "fits"]
    assert len(rows) == 38
    assert max(map(len, table.splitlines())) < 100
    assert {row.split()[3] for row in rows} == {"yes", "uncertain", "no"}
    assert "skip (1)" in rows[0]
    assert "(1) needs at least 50.2 GiB on the device, which has" in rest


def test_with_slurm_the_arrays_and_their_options_are_named(llmexp):
    words = ("model=7b", "hardware=a800", "method=F,R", "hydra/launcher=slurm", "hydra.launcher.partition=big")
    _, out, _ = llmexp("plan", *words)
    assert "slurm: an array of 2 jobs, each --ntasks-per-node=1 --partition=big --nodes=1 --gpus-per-node=8" in out
    assert "slurm" not in llmexp("plan", "model=7b", "hardware=a800", "method=F,R")[1]


def test_a_table_marks_times_that_are_known_from_one_side_only(llmexp):
    words = ("model=7b", "hardware=h100", "measure.steps=100000", "hardware.memory_bandwidth_bytes_per_s=null")
    _, out, _ = llmexp("plan", "method=Z3,R+Z3", *words)
    assert len(re.findall(r"^\d +7b .*  ≥ \d+ min \d+ s$", out, re.MULTILINE)) == 2, out
    assert "expected cost: 2 of 2 runs: at least " in out
    assert "(2 by their FLOPs at the devices' peak)" in out


def test_json_is_a_run_a_line(llmexp):
    _, out, _ = llmexp("plan", "method=F,R", "--json", *PAPER)
    assert [json.loads(line)["plan"]["method"] for line in out.splitlines()] == ["F", "R"]


def test_a_training_budget_goes_by_the_expected_speed(llmexp):
    words = ("plan", "method=Z3", "model=7b", "hardware=rtx4090", "data.seq_len=350", "--for", "tokens=1e9")
    _, out, _ = llmexp(*words)
    # 1e9 / 129.3 tokens/s = 89 d 12 h; x 8 GPUs x 0.34 USD an hour
    assert "training   1e9 tokens: about 89 d 12 h on 8 devices, 17,200 device-hours, 5,840 USD" in out
    assert "1e9 tokens" in llmexp(*words, "batch.micro=1,2")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("tokns=3", "unknown training 'tokns': did you mean tokens?"),
        ("tokens", "'' is not a number"),
        ("tokens=many", "'many' is not a number"),
        ("tokens=-1", "a finite number of tokens above 0"),
        ("tokens=inf", "must be a finite number of tokens above 0"),
        ("epochs=3", "a plan takes tokens"),
    ],
)
def test_a_training_that_cannot_be_is_one_line(given, said, llmexp):
    code, out, err = llmexp("plan", "model=tiny", "hardware=cpu", "--for", given)
    assert (code, out) == (2, "")
    assert err.startswith(f"llmexp: --for {given}: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("methods", ["F", "F,R"])
def test_a_card_without_a_driver_is_named_where_the_cpu_would_be_taken(methods, llmexp, monkeypatch):
    line = "this machine has a card of AMD (PCI 1002:74a1), and no GPU that nvidia-smi or amd-smi shows"
    monkeypatch.setattr("llmexp.sweep.run.undriven", lambda: line)
    assert llmexp("plan", f"method={methods}", "model=tiny", "hardware=cpu")[1].splitlines().count(line) == 1
    assert line not in llmexp("plan", f"method={methods}", *PAPER)[1]


def test_degrees_that_cannot_be_are_named_and_the_others_are_planned(llmexp):
    words = ("plan", "model=7b", "hardware=h100", "engine=megatron", "parallelism.dp=1")
    code, out, said = llmexp(*words, "parallelism.tp=2,3,4")
    assert code == 0
    assert "llmexp: left out: run parallelism.tp=3: parallelism.tp=3 does not divide model.num_heads=32" in said
    assert [tp in out for tp in ("tp=2", "tp=3", "tp=4")] == [True, False, True]
    code, _, said = llmexp(*words, "parallelism.tp=3,5")
    assert code == 2
    assert "run parallelism.tp=3: parallelism.tp=3 does not divide" in said


def test_a_layout_that_is_skipped_is_not_said_to_fit(llmexp):
    words = ("plan", "model=7b", "hardware=h100", "engine=torch", "parallelism.dp=1", "kernels.liger=true")
    _, alone, _ = llmexp(*words, "parallelism.tp=2")
    assert alone.splitlines()[1].startswith("  skipped    engine=torch with parallelism.tp=2: it has not been tried")
    _, table, _ = llmexp(*words, "parallelism.tp=1,2")
    too_large, skipped = [line.split() for line in table.splitlines()[2:4]]
    assert "no" in too_large
    assert skipped[3:] == ["parallelism.tp=2", "-", "none", "skip", "(2)"]


SERVED = ("task=serve", "model=7b", "hardware=a100", "engine=vllm")


def test_a_servers_plan_shows_what_each_load_would_get(llmexp):
    _, out, _ = llmexp("plan", *SERVED, "serve.rate=1,max", "serve.concurrency=8")
    _, fits, whole, *loads, saturation = out.partition("  loads ")[0].splitlines()
    assert re.fullmatch(r"  fits       yes \(needs [\d.]+ of [\d.]+ GiB a device\)", fits)
    found = re.fullmatch(
        r"  predicted  ([\d,]+) output tokens/s a GPU \(([\d,]+) to ([\d,]+) in 9 of 10\), by published .*", whole
    )
    rate, low, high = (int(number.replace(",", "")) for number in found.groups())
    assert low < rate < high
    assert [line.split(":")[0].strip() for line in loads] == ["1/s", "max", "8 at a time"]
    spans = r"TPOT [\d.,]+ ms \([\d.,]+ to [\d.,]+\), TTFT [\d.,]+ ms \([\d.,]+ to [\d.,]+\)"
    assert all(re.search(rf": [\d,]+ tokens/s, {spans}", line) for line in loads)
    assert re.fullmatch(r" {13}saturation near [\d.]+ requests/s", saturation)


def test_a_load_above_a_servers_saturation_is_named(llmexp):
    _, out, _ = llmexp("plan", *SERVED, "serve.rate=1,100")
    (above,) = (line for line in out.splitlines() if "more than it sustains" in line)
    assert above.strip().startswith("100/s: ")


def test_servers_plans_stand_beside_each_other_with_their_costs(llmexp):
    _, out, _ = llmexp("plan", *SERVED, "serve.rate=max", "model=7b,13b")
    header, _, seven, thirteen, *_ = out.splitlines()
    assert header.split()[-2:] == ["predicted", "time"]
    assert [line.split()[3] for line in (seven, thirteen)] == ["yes", "yes"]
    rates = [int(line.split()[7].replace(",", "")) for line in (seven, thirteen)]
    assert rates[0] > rates[1]
    assert "in 9 of 10 runs; docs/serving.md" in out
    plan = json.loads(llmexp("plan", "--json", *SERVED, "serve.rate=max")[1])
    work_s = plan["plan"]["predicted"]["work_s"]
    assert plan["cost"]["source"] == "predicted"
    assert plan["cost"]["held_s"] == pytest.approx(work_s)


def test_an_interval_without_runs_behind_it_says_so(llmexp) -> None:
    words = ("model=1b", "hardware=h100", "hardware.devices_per_node=1", "engine=torch", "method=F+C")
    assert "; too few runs like it were held out), by measured kernels" in llmexp("plan", *words, "precision=fp8")[1]
    assert "in 9 of 10), by measured kernels" in llmexp("plan", *words, "precision=bf16_mixed")[1]
    table = llmexp("plan", *words, "precision=fp8,bf16_mixed")[1]
    assert "times that; too few runs like it were held out" in table
    assert "times that in 9 of 10 runs" in table
