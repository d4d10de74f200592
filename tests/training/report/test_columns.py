import csv
import io

import pytest

from llmexp.record.result import Metric, Stability
from llmexp.report.table import build_report
from llmexp.report.text import comma_separated

BETWEEN = Metric(mean=1000.0, std_between_repeats=12.5, std_within_run=99.0, n=3)
WITHIN = Metric(mean=2000.0, std_within_run=40.0)
PURE = {"name": "bf16_pure", **dict.fromkeys(("parameters", "gradients", "master", "moments"), "bf16")}
A800 = {"hardware__name": "a800", "precision": PURE}


def shown(*folders):
    return {column.header: list(column.cells) for column in build_report(folders).sections[0].columns}


def said(*folders):
    return "\n".join(build_report(folders).sections[0].legend)


def test_deviation_is_the_one_between_repeats_and_else_the_marked_one_within_the_run(make_run):
    folders = (
        make_run(metrics={"tokens_per_s": BETWEEN}),
        make_run("F", metrics={"tokens_per_s": WITHIN}),
        make_run("R", metrics={"tokens_per_s": 1.0}),
    )
    assert shown(*folders)["tokens/s"] == ["1,000 ± 10", "2,000 ± 40 w", "1.00"]
    assert "±: standard deviation between repeats" in said(*folders)
    assert "± … w: standard deviation of the steps within the run" in said(*folders)
    assert "w:" not in said(folders[0])


def test_an_unstable_figure_and_one_that_cannot_be_judged_have_signs_and_their_reasons_in_notes(make_run):
    reasons = {
        "unstable": ["contention: a hog", "noise: ± 9 %"],
        "unknown": ["too few steps to judge: 2 in the window, 18 are needed"],
        "stable": [],
    }
    found = [Stability(verdict=verdict, reasons=told) for verdict, told in reasons.items()]
    folders = [
        make_run(method, metrics={"tokens_per_s": WITHIN}, stability=one)
        for method, one in zip(("Naive", "F", "R"), found, strict=True)
    ]
    assert shown(*folders)["tokens/s"] == ["2,000 ± 40 w ! (1)", "2,000 ± 40 w ? (2)", "2,000 ± 40 w"]
    assert build_report(folders).sections[0].notes == [
        "unstable: contention: a hog; noise: ± 9 %",
        "stability unknown: too few steps to judge: 2 in the window, 18 are needed",
    ]
    assert "! unstable: do not rely on it" in said(folders[0])
    assert "? stability unknown" not in said(folders[0])
    assert "? stability unknown: its note says what is missing to judge it" in said(folders[1])
    assert "!" not in said(*folders[1:])
    assert "?" not in said(folders[2])


def test_tokens_per_joule_say_what_drew_the_power(make_run):
    metered = make_run(metrics={"tokens_per_joule": 12.345})
    result = metered.result().model_copy(update={"what_ran": {"energy_counters": ["GPU board"]}})
    metered.write(metered.result_path, result)
    assert shown(metered, make_run("F"))["tokens/J"] == ["12.3", ""]
    assert "tokens/J: tokens/s over the mean power of what was read: GPU board" in said(metered, make_run("F"))
    assert "tokens/J" not in shown(make_run("R"))


def test_only_out_of_memory_is_a_dash(make_run):
    endings = ["oom", "skipped", "timeout", "failed", "killed", "incomplete"]
    methods = ["Naive", "F", "R", "Z2", "Z3", "Z1"]
    folders = [
        make_run(method, status, reason="" if status == "oom" else f"why {status}")
        for method, status in zip(methods, endings, strict=True)
    ]
    table = shown(*folders, make_run("F+R", None))
    assert table["tokens/s"] == [
        "-",
        "skipped (1)",
        "timeout (2)",
        "failed (3)",
        "killed (4)",
        "incomplete (5)",
        "planned",
    ]
    assert table["memory GB"] == ["-", "", "", "", "", "", ""]
    assert build_report(folders).sections[0].notes == [
        "why skipped",
        "why timeout",
        "why failed",
        "why killed",
        "why incomplete",
    ]
    assert "-: out of memory" in said(*folders)


def test_one_reason_is_one_note(make_run):
    folders = [make_run(method, "skipped", reason="too large") for method in ("Naive", "F")]
    assert shown(*folders)["tokens/s"] == ["skipped (1)", "skipped (1)"]
    assert build_report(folders).sections[0].notes == ["too large"]


@pytest.mark.parametrize(
    ("tflops", "header", "cells", "power"),
    [
        ((412.34, 8.126, 1234.5), "TFLOP/s per device", ["412", "8.13", "1,234"], 12),
        ((0.0612, 0.00412, 0.999), "GFLOP/s per device", ["61.2", "4.12", "999"], 9),
        ((1.2, 0.0612), "TFLOP/s per device", ["1.20", "0.0612"], 12),
        ((0.0002, 0.0), "MFLOP/s per device", ["200", "0"], 6),
    ],
)
def test_flops_say_something_however_few_they_are(make_run, tflops, header, cells, power):
    folders = [
        make_run(method, metrics={"tflops_per_s_per_gpu": value})
        for method, value in zip(("Naive", "F", "R"), tflops, strict=False)
    ]
    assert shown(*folders, make_run("Z2", "oom"))[header] == [*cells, ""]
    assert f"{header}: the model's, recomputation left out; {header[:5]} = 10^{power} FLOPs" in said(*folders)


@pytest.mark.parametrize(
    ("metrics", "header", "cell"),
    [
        ({"peak_allocated_bytes": 66.7e9}, "peak GB", "66.7"),
        ({"training_state_bytes": 12.34e6}, "state MB", "12.3"),
        ({"training_state_bytes": 2e9, "peak_rss_bytes": 9e9}, "state GB", "2.0"),
    ],
)
def test_memory_says_its_kind_and_unit(make_run, metrics, header, cell):
    folder = make_run(metrics=metrics | {"tokens_per_s": 1.0})
    assert shown(folder)[header] == [cell]
    assert f"{header}: " in said(folder)
    assert f"{header[-2:]} = 10^{9 if header.endswith('GB') else 6} bytes" in said(folder)


def test_two_kinds_of_memory_are_both_explained(make_run):
    folders = (
        make_run(metrics={"training_state_bytes": 5e8}),
        make_run("F", metrics={"peak_allocated_bytes": 2e9}, **A800),
    )
    assert shown(*folders)["memory GB"] == ["0.5", "2.0"]
    assert "peak allocated" in said(*folders)
    assert "optimizer state" in said(*folders)


def test_speed_is_relative_to_naive_with_the_same_work(make_run):
    fast = {"metrics": {"tokens_per_s": 300.0}}
    folders = [
        make_run("Naive", metrics={"tokens_per_s": 200.0}),
        make_run("F", **fast),
        make_run("F", **fast, batch={"micro": 2, "accumulation": 1}),
        make_run("F", **fast, precision__name="other"),
        make_run("R", "oom"),
    ]
    assert shown(*folders)["x Naive"] == ["1.00", "1.50", "", "", ""]


def test_a_measured_speed_stands_beside_its_prediction(make_run):
    sheet = {"peak_flops_per_s": {"bf16": 312e12}, "memory_bandwidth_bytes_per_s": 2.039e12}
    sheet |= {"device": "cuda", "interconnect_bandwidth_bytes_per_s": 200e9, "memory_bytes": 80 * 2**30}
    hardware = {f"hardware__{name}": value for name, value in sheet.items()} | A800
    (slow,) = build_report([make_run("F", metrics={"tokens_per_s": 1.0}, **hardware)]).sections[0].rows
    predicted = slow.plan.predicted.rate
    folders = [
        make_run("F", metrics={"tokens_per_s": 1.1 * predicted}, **hardware),
        make_run("R", metrics={"tokens_per_s": 1.0}, **hardware),
        make_run("F", metrics={"tokens_per_s": 1.0}),
    ]
    assert shown(*folders)["x predicted"] == ["1.10", "0.00 *", ""]
    assert "x predicted: tokens/s over the plan's prediction; * outside" in said(*folders)
    first, *_, cpu = csv.DictReader(io.StringIO(comma_separated(build_report(folders))))
    assert float(first["predicted_tokens_per_s_low"]) < predicted < float(first["predicted_tokens_per_s_high"])
    assert float(first["predicted_tokens_per_s"]) == pytest.approx(predicted)
    assert cpu["predicted_tokens_per_s"] == cpu["predicted_peak_allocated_bytes"] == ""
    peak, need, most = (
        float(first[f"predicted_{name}"]) for name in ("peak_allocated_bytes", "need_bytes", "need_bytes_most")
    )
    assert 0 < peak < need <= most


def test_what_varies_has_a_column_and_what_does_not_is_in_the_title(make_run):
    folders = make_run("Naive"), make_run("Naive", batch={"micro": 2, "accumulation": 3})
    assert shown(*folders)["batch"] == ["1", "2 x 3 passes"]
    assert (
        build_report(folders).sections[0].title
        == "pretrain, tiny, on cpu, deepspeed, 2 ranks, seq_len 350, fp32, adamw"
    )
    assert "precision" not in shown(*folders)


def test_the_papers_cell_stands_beside_with_the_ratio(make_run):
    measured = {"tokens_per_s": 3744.15, "peak_allocated_bytes": 33.35e9, "mfu": 0.4, "tflops_per_s_per_gpu": 124.8}
    ours = make_run("Naive", metrics=measured, model__name="7b", **A800)
    table = shown(ours, make_run("Naive", "oom", model__name="7b", hardware__name="rtx4090", precision=PURE))
    assert table["paper tokens/s"] == ["7,488.3 (1)", "-"]
    assert table["x paper"] == ["0.50", ""]
    assert table["paper GB"] == ["66.7", "-"]
    assert table["GB x paper"] == ["0.50", ""]
    assert table["MFU %"] == ["40.0", ""]
    assert table["TFLOP/s per device"] == ["125", ""]
    assert "arXiv 2311.03687v2, table III" in said(ours)


def test_without_a_match_there_are_no_columns_of_the_paper(make_run):
    assert not [header for header in shown(make_run(metrics={"tokens_per_s": 1.0})) if "paper" in header]


def test_a_doubtful_figure_of_the_paper_has_a_note(make_run):
    folder = make_run("R+Z2+O", model__name="13b", batch={"micro": 64, "accumulation": 1}, **A800)
    assert shown(folder)["paper tokens/s"] == ["6,404.4 (1)"]
    assert shown(make_run("R+Z2", model__name="7b", **A800))["paper tokens/s"] == ["5,704.0 (1)"]
    assert build_report([folder]).sections[0].notes[0].startswith("paper, table IV: doubt: ")


def test_q_is_labeled(make_run):
    folders = make_run("Q"), make_run("Naive")
    assert shown(*folders)["method"] == ["Q†", "Naive"]
    assert "† not full pre-training" in said(*folders)
    assert "†" not in said(folders[1])


def test_stacks_have_a_column_where_runs_of_one_engine_differ_in_them(make_run, result_of):
    def of_stack(method, stack, **changes):
        folder = make_run(method, metrics={"tokens_per_s": 1.0}, **changes)
        folder.write(folder.result_path, folder.result().model_copy(update={"stack": stack}))
        return folder

    old, new, other = (
        of_stack("Naive", "a" * 12),
        of_stack("F", "b" * 12),
        of_stack("R", "c" * 12, engine__name="torch"),
    )
    assert shown(old, new, make_run("Z2", None))["stack"] == ["a" * 12, "b" * 12, ""]
    assert "stack: runs whose stack differs" in said(old, new)
    assert "stack" not in shown(new, other)
    assert "stack" not in said(new, other)


def test_padding_has_a_column_of_real_tokens_where_there_is_any(make_run):
    records = {"name": "instructions", "seq_len": 64}
    padded = make_run(
        "Naive", metrics={"tokens_per_s": 1000.0, "real_tokens_per_s": 400.0}, data=records | {"pack": False}
    )
    packed = make_run(
        "Naive", metrics={"tokens_per_s": 900.0, "real_tokens_per_s": 850.0}, data=records | {"pack": True}
    )
    table = shown(padded, packed)
    assert sorted(zip(table["data"], table["real tokens/s"], strict=True)) == [
        ("instructions packed", "850"),
        ("instructions padded", "400"),
    ]
    assert "real tokens/s: the same without padding" in said(padded, packed)
    full = make_run("F", metrics={"tokens_per_s": 900.0, "real_tokens_per_s": 900.0})
    assert not {"real tokens/s", "data"} & shown(full).keys()
    growing = make_run(
        "F", data={"name": "text", "seq_len": 64, "seq_len_schedule": [32, 64]}, metrics={"tokens_per_s": 1.0}
    )
    assert set(shown(full, growing)["data"]) == {"", "growing 32 64"}


def test_records_that_were_cut_are_said(make_run, tmp_path):
    folder = make_run("F", metrics={"tokens_per_s": 9.0})
    assert "records longer" not in " ".join(said(folder))
    cut = folder.result().model_copy(
        update={"what_ran": {"data_cut_records": 3, "data_left_out_records": 1, "data_read_records": 40}}
    )
    folder.write(folder.result_path, cut)
    assert "records longer than seq_len: 3 of 40 cut, 1 left out" in said(folder)


def test_why_a_program_has_no_mfu_is_said(make_run):
    folder = make_run(metrics={"tokens_per_s": 1.0})
    folder.write(
        folder.result_path,
        folder.result().model_copy(update={"what_ran": {"no_flops": "the program's matrix products are in fp32"}}),
    )
    assert "no MFU: the program's matrix products are in fp32" in build_report([folder]).sections[0].legend


def test_engines_are_beside_the_first_one_with_the_same_method(make_run):
    engines = ("deepspeed", "torch")
    runs = [
        make_run(method, metrics={"tokens_per_s": speed}, engine=engine_of(engine))
        for method, speeds in {"F": (100.0, 150.0), "R": (80.0, 60.0)}.items()
        for engine, speed in zip(engines, speeds, strict=True)
    ]
    assert shown(*runs)["x deepspeed"] == ["1.00", "1.50", "1.00", "0.75"]
    assert "x deepspeed: tokens/s over those of deepspeed with the same method and work" in said(*runs)
    assert "x deepspeed" not in shown(runs[0], runs[2])
    assert "x deepspeed" not in shown(runs[0], runs[3])


def engine_of(name: str) -> dict[str, object]:
    return {"name": name, "launcher": "spawn"}
