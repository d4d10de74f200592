from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from llmexp.cli.app import hydra_app
from llmexp.cli.arguments import run_parser
from llmexp.cli.overrides import accept
from llmexp.cli.words import composed, jobs_of
from llmexp.method import Method
from llmexp.paper.printed import paper_cell, paper_cells, read_table
from llmexp.paper.printed.breakdowns import breakdown_tables
from llmexp.paper.training.step_times.matching import SWEEP
from llmexp.training.advice.mathematics import changes_of
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan

CONF = Path(__file__).parents[2] / "conf"
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))

# The experiments that share runs, with the paper's tables that they are for; figure 5 asks for the runs of XIII.
BREAKDOWNS = {
    "paper_table05": ("V",),
    "paper_table06": ("VI",),
    "paper_table07": ("VII",),
    "paper_table08": ("VIII",),
    "paper_table13": ("XIII",),
    "paper_table14": ("XIV",),
    "paper_table15": ("XV",),
    "paper_table16": ("XVI",),
    "paper_fig05": ("V", "VII"),
}


# Of the paper's servers: figures 6 to 10 show the same runs in different ways.
PROFILES, PROFILED = "paper_serving_profile", {"paper_table10", "paper_table11"}
SERVED, SERVING = "paper_serving", {f"paper_fig{number:02}" for number in range(6, 11)}


@cache
def plans(*words: str) -> list[TrainingPlan]:
    return [job.plan for job in jobs_of(run_parser().parse_intermixed_args(words))]


def planned(*words: str) -> list[tuple[str, str]]:
    return [(plan.config.model.name, plan.method) for plan in plans(*words)]


def table03() -> set[tuple[str, str]]:
    with (files("llmexp.paper.printed") / "table03_pretrain_bs1.csv").open() as file:
        return {(row["model"].lower(), str(Method.parse(row["method"]))) for row in csv.DictReader(file)}


def test_paper_table03_is_the_papers_table():
    found = planned("experiment=paper_table03", "hardware=a800")
    assert len(found) == len(set(found)) == 38
    assert set(found) == table03()


def test_paper_table03_on_one_model_is_its_22_methods():
    found = planned("experiment=paper_table03", "model=tiny")
    assert len(found) == 22
    assert {method for _, method in found} == {method for model, method in table03() if model == "7b"}


def test_a_cell_of_paper_table03_can_be_asked_for_by_its_own_values():
    assert planned("experiment=paper_table03", "hardware=a800", "model=13b") == [
        pair for pair in planned("experiment=paper_table03") if pair[0] == "13b"
    ]
    assert planned("experiment=paper_table03", "hardware=a800", "method=O+Z2+R,Q") == [
        ("7b", "R+Z2+O"),
        ("13b", "R+Z2+O"),
        ("7b", "Q"),
    ]


@pytest.mark.parametrize("name", sorted(PROFILED))
def test_a_profiled_server_decodes_all_requests_together_and_keeps_its_modules(name):
    (plan,) = plans(f"experiment={name}", "hardware=a800")
    assert plan.comparison_key["loads"] == "1024 at a time"
    assert plan.config.engine.options == {"max_sequences": 1024, "compile": False}


def test_the_command_line_wins_over_cells():
    assert planned("experiment=paper_table03", "model=tiny,125m", "method=R+F") == [("tiny", "F+R"), ("125m", "F+R")]


def test_paper_table03_keeps_the_papers_protocol():
    found = [plan for plan in plans("experiment=paper_table03", "hardware=a800") if plan.config.model.name == "7b"]
    assert len(found) == 22
    for plan in found:
        config = plan.config
        assert (config.data.name, config.data.seq_len, config.precision.name, config.batch.micro) == (
            "synthetic",
            350,
            "bf16_pure",
            1,
        )
        assert (config.measure.warmup_steps, config.measure.steps, plan.dims.world_size) == (30, 100, 8)


def test_paper_table04_searches_the_largest_batch_of_every_cell_among_powers_of_two():
    found = plans("experiment=paper_table04", "hardware=a800")
    printed = {(cell.model.lower(), str(Method.parse(cell.method))) for cell in paper_cells("IV")}
    assert len(found) == 38
    assert {(plan.config.model.name, plan.method) for plan in found} == printed == table03()
    for plan in found:
        config = plan.config
        assert (config.batch.micro, config.batch.search) == ("max", "pow2")
        assert (config.precision.name, config.data.seq_len, plan.dims.world_size) == ("bf16_pure", 350, 8)


def test_paper_table09_is_the_papers_41_rows_each_with_its_cell():
    found = plans("experiment=paper_table09", "hardware=a800")
    printed = {
        (row["model"].lower(), Method.parse(row["method"], "finetune")) for row in read_table("table09_finetune_bs1")
    }
    assert len(found) == 41
    assert {(plan.config.model.name, Method.parse(plan.method, "finetune")) for plan in found} == printed
    for plan in found:
        assert (plan.skip, plan.config.task.name, plan.config.adapter.rank, plan.config.data.seq_len) == (
            None,
            "finetune",
            64,
            350,
        )
        cell = paper_cell(plan.config.model.name, plan.method, "a800", 1)
        assert cell
        assert cell.table == "IX"


def test_paper_table02_has_both_engines_and_both_readings_of_megatrons_batch():
    found = {
        (plan.config.engine.name, plan.method, plan.batch.micro): plan
        for plan in plans("experiment=paper_table02", "hardware=a800")
    }
    assert {key for key in found if key[0] == "deepspeed"} == {("deepspeed", "Naive", 1), ("deepspeed", "Naive", 4)}
    assert {key for key in found if key[0] == "megatron"} == {
        ("megatron", method, micro) for method in ("Naive", "Z1") for micro in (1, 4, 32)
    }
    for (engine, method, _), plan in found.items():
        assert plan.skip is None
        assert (plan.dims.world_size, plan.config.data.seq_len, plan.config.model.name) == (8, 350, "7b")
        assert (paper_cell("7b", method, "a800", plan.batch.micro, engine) is None) == (method == "Z1")


def test_paper_fig04_is_weak_and_strong_scaling_that_meet_on_8_gpus():
    found = {(plan.dims.world_size, plan.batch.global_) for plan in plans("experiment=paper_fig04", "hardware=rtx4090")}
    assert found == {(n, 2 * n) for n in (1, 2, 4, 8)} | {(n, 16) for n in (1, 2, 4)}
    assert {
        (plan.method, plan.batch.micro, plan.config.data.seq_len)
        for plan in plans("experiment=paper_fig04", "hardware=a800")
    } == {("Q", 2, 350)}


def test_paper_fig04_skips_what_a_smaller_machine_has_not():
    skipped = {
        plan.dims.world_size
        for plan in plans("experiment=paper_fig04", "hardware=rtx4090", "hardware.devices_per_node=4")
        if plan.skip
    }
    assert skipped == {8}


def test_paper_fig04_on_two_cores_is_its_first_halves():
    found = {
        (plan.dims.world_size, plan.batch.global_)
        for plan in plans("experiment=paper_fig04", "model=tiny", "hardware=cpu", "parallelism.dp=1,2")
    }
    assert found == {(1, 2), (2, 4), (1, 16), (2, 16)}


def test_gpu_7b_is_the_rows_that_fit_one_card_with_the_smaller_batches_first():
    found = plans("experiment=gpu_7b", "hardware=h200")
    batches: dict[tuple[str, str], list[int]] = {}
    for plan in found:
        assert (plan.dims.world_size, plan.config.data.seq_len, plan.skip) == (1, 350, None)
        batches.setdefault((plan.config.precision.name, plan.method), []).append(plan.batch.micro)
    wanted = {"Naive", "F", "R", "F+R", "Q", "Z2", "Z3", "Z2+O", "Z3+O", "F+R+Z3+O", "C", "F+C"}
    for precision in ("bf16_pure", "bf16_mixed"):
        assert wanted <= {method for of, method in batches if of == precision}
    assert all(sizes == [2**power for power in range(9)] for sizes in batches.values())
    assert all(plan.batch.micro == 1 for plan in found[: len(batches)]), "what tells most comes first"


def test_first_run_is_small_and_on_real_text():
    assert planned("experiment=first_run") == [
        ("tiny", method) for method in ("Naive", "F", "R", "Z2", "Z3+O", "F+R+Z3")
    ]


def test_equal_loss_measures_what_changes_the_mathematics_in_turn_for_each_seed():
    found = plans("experiment=equal_loss", "hardware=cpu")
    assert not any(plan.skip for plan in found)
    assert [plan.config.seed for plan in found] == [seed for seed in range(5) for _ in range(5)]
    changes = [tuple(changes_of(plan)) for plan in found]
    assert changes[:5] * 5 == changes
    assert changes[:5] == [(), ("bf16 without fp32 copy",), ("fp8 products",), ("4-bit weights",), ("8-bit moments",)]
    assert {(plan.config.data.name, plan.config.optimizer.lr) for plan in found} == {("text", 3e-3)}


def test_equal_loss_of_lora_tunes_one_trained_model_by_three_methods_for_each_seed():
    trained, *tuned = plans("experiment=equal_loss_lora", "hardware=cpu")
    assert not any(plan.skip for plan in tuned)
    assert {plan.config.starts_from.made.run for plan in tuned} == {trained.id}
    assert [(plan.config.seed, plan.method) for plan in tuned] == [
        (seed, method) for seed in range(5) for method in ("Naive", "L", "QL")
    ]
    assert {(plan.method, plan.config.optimizer.lr) for plan in tuned} == {("Naive", 1e-3), ("L", 1e-2), ("QL", 1e-2)}
    assert all(Path(file).is_file() for plan in tuned for file in plan.config.data.files)


def test_compress_tour_serves_the_original_and_what_each_of_ten_recipes_made_of_it():
    trained, *others = plans("experiment=compress_tour", "hardware=cpu")
    made, served = others[:10], others[10:]
    assert {plan.config.starts_from.made.run for plan in made} == {trained.id}
    assert len({plan.config.compress.name for plan in made}) == 10
    assert [plan.config.starts_from.made.run for plan in served] == [trained.id, *(plan.id for plan in made)]
    assert all(plan.skip is None for plan in served)


def test_qat_rounds_what_was_trained_for_it_and_what_was_not_alike():
    trained, plain, *others = plans("experiment=qat", "hardware=cpu")
    aware, rounded = others[:2], others[2:]
    assert {plan.config.starts_from.made.run for plan in (plain, *aware)} == {trained.id}
    assert len({(plan.config.measure.tokens, plan.config.optimizer.lr) for plan in (plain, *aware)}) == 1
    assert [plan.config.precision.qat for plan in (plain, *aware)] == [None, "int3", "int2"]
    assert [(plan.config.starts_from.made.run, plan.config.compress.weights) for plan in rounded] == [
        (source.id, bits) for bits, maker in (("int3", aware[0]), ("int2", aware[1])) for source in (plain, maker)
    ]
    assert {plan.config.compress.group_size for plan in rounded} == {aware[0].config.precision.qat_group_size}


def test_the_case_studies_set_weights_to_zero_and_round_experts_alone():
    dense, experts, *made = plans("experiment=compress_case_studies", "hardware=cpu")
    assert [plan.config.starts_from.made.run for plan in made] == [dense.id] * 5 + [experts.id] * 6
    recipes = [plan.config.compress for plan in made]
    assert [(each.method, each.sparsity, each.pattern) for each in recipes[:5]] == [
        ("magnitude", 0.5, "free"),
        ("sparsegpt", 0.5, "free"),
        ("sparsegpt", 0.6, "free"),
        ("sparsegpt", 0.5, "2:4"),
        ("magnitude", 0.5, "2:4"),
    ]
    assert {(each.method, each.weights, each.layers) for each in recipes[5:]} == {
        (method, f"int{bits}", "experts") for method in ("gptq", "rtn") for bits in (2, 3, 4)
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_its_own_sweep_or_one_with_those_whose_runs_it_shares(name):
    shared = dict.fromkeys(BREAKDOWNS, SWEEP) | dict.fromkeys(SERVING, SERVED) | dict.fromkeys(PROFILED, PROFILES)
    wanted = shared.get(name, name)
    with hydra_app() as hydra:
        whole = composed(hydra, accept(hydra.config_loader, [f"experiment={name}"]))
    assert whole.sweep.name == wanted
    assert not any("sweep.name" in cell for cell in whole.hydra.sweeper.cells or ())


@pytest.mark.parametrize(("name", "models"), [("06", 3), ("07", 1), ("08", 1), ("09", 3), ("10", 3)])
def test_the_papers_servers_get_a_thousand_requests_at_once_from_all_its_engines(name, models):
    found = plans(f"experiment=paper_fig{name}", "hardware=a800")
    assert len(found) == 3 * models
    assert {plan.config.engine.name for plan in found} == {"vllm", "lightllm", "tgi"}
    for plan in found:
        assert (plan.devices, str(plan.config.serve.prompt), plan.skip) == (8, "512 tokens", None)
        assert [(point.is_burst, point.requests) for point in plan.points] == [(True, 1000)]


@pytest.mark.parametrize(("name", "tables"), BREAKDOWNS.items())
def test_an_experiment_on_where_time_goes_has_the_runs_of_every_line_of_its_tables(name, tables):
    found = {
        (plan.config.model.name, plan.method, plan.batch.micro) for plan in plans(f"experiment={name}", "hardware=a800")
    }
    asked = {
        (figure.model, method, figure.batch_micro)
        for table in breakdown_tables()
        if table.number in tables
        for figure in table.figures
        for method in figure.methods
    }
    assert found == asked
    for plan in plans(f"experiment={name}", "hardware=a800"):
        config = plan.config
        assert (plan.dims.world_size, config.data.seq_len, config.precision.name) == (8, 350, "bf16_pure")
        assert (plan.comparison_key["engine"], plan.comparison_key["optimizer"], plan.comparison_key["data"]) == (
            "deepspeed",
            "adamw",
            "",
        )
        protocol = config.measure
        assert (protocol.warmup_steps, protocol.profile, protocol.profile_steps) == (30, True, 10)


def test_experiments_on_where_time_goes_share_their_runs():
    runs = {name: {plan.id for plan in plans(f"experiment={name}", "hardware=a800")} for name in BREAKDOWNS}
    assert runs["paper_table05"] == runs["paper_table06"]
    assert runs["paper_table14"] == runs["paper_table16"]
    assert runs["paper_table13"] == runs["paper_fig05"] == runs["paper_table06"] | runs["paper_table07"]
    assert runs["paper_table05"] < runs["paper_table08"] < runs["paper_table15"]


@pytest.mark.parametrize("name", BREAKDOWNS)
def test_an_experiment_on_where_time_goes_fits_any_machine(name):
    for plan in plans(f"experiment={name}", "model=tiny", "hardware=cpu", "method=Naive", "batch.micro=1"):
        assert (plan.skip, plan.config.model.name, plan.config.hardware.name) == (None, "tiny", "cpu")


def test_the_command_line_wins_over_the_experiments_values():
    (job,) = jobs_of(
        run_parser().parse_intermixed_args(
            ["experiment=paper_table03", "sweep.name=mine", "batch.micro=2", "precision=fp32", "method=F", "model=7b"]
        )
    )
    config = job.plan.config
    assert (config.sweep.name, config.batch.micro, config.precision.name) == ("mine", 2, "fp32")


@pytest.mark.parametrize("card", ["h100", "h200"])
def test_gpu_ablation_is_planned_with_a_lever_more_in_each_row(card):
    found = plans("experiment=gpu_ablation", f"hardware={card}")
    assert {(plan.dims.world_size, plan.config.data.seq_len, plan.skip) for plan in found} == {(1, 4096, None)}
    assert len({plan.id for plan in found}) == len(found) == 13
    of_passes = [plan for plan in found if plan.batch.accumulation == 8]
    assert [plan.config.kernels.fused_accumulation for plan in of_passes] == [False, True, False, False]
    assert [plan.config.precision.scaling for plan in of_passes if plan.config.precision.linears] == [
        "tensorwise",
        "rowwise",
    ]
    assert sum(plan.config.kernels.chunked_loss for plan in found) == 1
    assert [plan.config.memory.keep for plan in found if plan.method == "F+R"] == [None, "attention", "products"]


@pytest.mark.parametrize("card", ["h100", "h200"])
def test_gpu_moe_is_planned_on_eight_cards_which_it_fits(card):
    found = plans("experiment=gpu_moe", f"hardware={card}")
    assert {(plan.dims.world_size, plan.config.data.seq_len, plan.skip) for plan in found} == {(8, 4096, None)}
    assert len({plan.id for plan in found}) == len(found) == 7
    assert [(plan.config.model.name, plan.method) for plan in found if plan.dims.ep == 8] == [
        ("qwen3-30b-a3b", "F+R+Z3")
    ]
    fits = [fit_of(plan, plan.batch.micro) for plan in found]
    assert {fit.verdict for fit in fits if fit} == {"yes"}
    sparse = {plan.config.model.name for plan in found if plan.active_parameters < plan.parameters}
    assert sparse == {"qwen3-30b-a3b", "moonlight-16b-a3b", "gpt-oss-20b"}


def test_gpu_finetune_is_what_one_card_can_hold_with_the_papers_batch_first():
    found = plans("experiment=gpu_finetune", "hardware=h200")
    assert {(plan.dims.world_size, plan.config.data.seq_len, plan.config.task.name, plan.skip) for plan in found} == {
        (1, 350, "finetune", None)
    }
    assert {plan.config.model.name for plan in found if plan.batch.micro == 1} == {"7b", "13b", "70b"}
    assert all("QL" in plan.method for plan in found if plan.config.model.name == "70b")
    first_larger = next(index for index, plan in enumerate(found) if plan.batch.micro > 1)
    assert all(plan.batch.micro > 1 for plan in found[first_larger:])


def test_serve_first_asks_every_engine_the_same_loads():
    found = plans("experiment=serve_first")
    assert [plan.config.engine.name for plan in found] == ["transformers", "llama_cpp", "vllm"]
    assert {plan.comparison_key["loads"] for plan in found} == {"1/s, 4/s, max"}


def test_serve_saturation_searches_with_enough_requests_a_probe():
    (plan,) = plans("experiment=serve_saturation")
    assert plan.comparison_key["loads"] == "search from 10/s"
    assert plan.config.serve.requests >= 300
    assert (
        plans("experiment=serve_saturation", "serve.search.start_per_s=30")[0].comparison_key["loads"]
        == "search from 30/s"
    )
