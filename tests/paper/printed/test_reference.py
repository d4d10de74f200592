import pytest

from llmexp.method import Method
from llmexp.paper.printed import LORA_TARGETS, paper_cell, paper_cells, paper_largest, paper_scaling, read_table
from llmexp.schema import AdapterConfig

PRETRAINING = [(row["model"], row["method"]) for row in read_table("table03_pretrain_bs1") if row["hardware"] == "a800"]


def test_table_iii_has_22_methods_of_7b_and_16_of_13b():
    assert [model for model, _ in PRETRAINING].count("7B") == 22
    assert [model for model, _ in PRETRAINING].count("13B") == 16


@pytest.mark.parametrize(("model", "method"), PRETRAINING)
@pytest.mark.parametrize("hardware", ["a800", "rtx4090", "rtx3090", "rtx3090_nvlink"])
def test_every_cell_of_table_iii_is_found_by_our_canonical_name(model, method, hardware):
    canonical = str(Method.parse(method))
    cell = paper_cell(model.lower(), canonical, hardware, 1)
    assert cell is not None
    assert (cell.table, cell.model, cell.method, cell.hardware, cell.batch_micro) == ("III", model, method, hardware, 1)
    assert cell.oom == (cell.memory_bytes is None)


def test_a_cell_holds_what_is_printed():
    cell = paper_cell("7b", "Naive", "a800", 1)
    assert cell is not None
    assert (cell.tokens_per_s, cell.memory_bytes, cell.oom, cell.doubtful) == (7488.3, 66.7e9, False, True)
    assert paper_cell("7b", "Naive", "rtx4090", 1).oom


def test_larger_batches_come_from_table_iv_where_they_match():
    cell = paper_cell("7b", "Z2", "a800", 8)
    assert cell is not None
    assert (cell.table, cell.tokens_per_s) == ("IV", 21481.7)
    assert paper_cell("7b", "Z2", "a800", 7) is None


def test_the_largest_batch_of_table_iv_is_found_where_there_is_one_and_where_none_fitted():
    cell = paper_largest("7b", "F+R", "a800")
    assert cell
    assert (cell.table, cell.batch_micro, cell.tokens_per_s) == ("IV", 64, 25639.1)
    none = paper_largest("7b", "Naive", "rtx4090")
    assert none
    assert (none.oom, none.batch_micro) == (True, 0)
    assert paper_largest("70b", "F", "a800") is None


def test_a_remark_on_the_memory_is_told_from_one_on_the_speed():
    about = {
        (cell.model, cell.method, cell.hardware): cell.is_about_memory for cell in paper_cells("IV") if cell.doubtful
    }
    assert about["13B", "F+Z2+O", "a800"]
    assert about["13B", "F+R+Z3+O", "a800"]
    assert sum(about.values()) == 2
    assert not next(cell for cell in paper_cells("III") if not cell.note).is_about_memory


def test_atoms_match_in_any_order():
    assert paper_cell("7b", "F+R", "a800", 1) == paper_cell("7B", "R+F", "a800", 1) != paper_cell("7b", "R", "a800", 1)


def test_a_doubtful_cell_says_why():
    cell = paper_cell("13b", "R+Z2+O", "a800", 64)
    assert cell is not None
    assert cell.doubtful
    assert "640435" in cell.note


@pytest.mark.parametrize(
    ("model", "method", "hardware"),
    [("tiny", "Naive", "a800"), ("7b", "Z1", "a800"), ("7b", "Naive", "h100"), ("7b", "Naive", "cpu")],
)
def test_what_the_paper_did_not_run_has_no_cell(model, method, hardware):
    assert paper_cell(model, method, hardware, 1) is None


def test_every_figure_that_the_readme_calls_doubtful_or_odd_has_a_remark():
    doubtful, odd = paper_cell("13b", "L+R", "a800", 1), paper_cell("7b", "R+Z2", "a800", 1)
    assert (doubtful.doubtful, doubtful.remark[:6]) == (True, "doubt:")
    assert (odd.doubtful, odd.remark[:4]) == (False, "odd:")
    assert paper_cell("7b", "F", "a800", 1).remark == ""


@pytest.mark.parametrize(("micro", "printed", "tokens_per_s"), [(1, "1", 10936), (32, "32", 13977), (4, "32", 13977)])
def test_megatrons_cells_of_table_ii_stand_beside_both_readings_of_its_batch_and_one_method(
    micro, printed, tokens_per_s
):
    cell = paper_cell("7b", "Naive", "a800", micro, "megatron")
    assert cell is not None
    assert (cell.table, cell.tokens_per_s, cell.doubtful) == ("II", tokens_per_s, printed == "32")
    assert paper_cell("7b", "Naive", "a800", 8, "megatron") is None
    assert paper_cell("7b", "Z1", "a800", micro, "megatron") is None
    assert paper_cell("7b", "F", "a800", micro, "megatron") is None


def test_scaling_is_known_for_two_machines_on_eight_gpus():
    found = paper_scaling("7b", "Q", "rtx4090", 2, 8)
    assert found is not None
    assert (found.percent, found.note) == (90.8, "")
    assert "NVLink" in paper_scaling("7b", "Q", "rtx3090", 2, 8).note
    for other in (
        ("7b", "Q", "a800", 2, 8),
        ("7b", "Q", "rtx4090", 2, 4),
        ("7b", "F", "rtx4090", 2, 8),
        ("7b", "Q", "rtx4090", 1, 8),
    ):
        assert paper_scaling(*other) is None


@pytest.mark.parametrize("number", range(1, 17))
def test_all_tables_are_carried(number):
    from importlib.resources import files

    names = [
        entry.name.removesuffix(".csv")
        for entry in files("llmexp.paper.printed").iterdir()
        if entry.name.startswith(f"table{number:02}")
    ]
    assert len(names) == 1
    assert read_table(names[0])


def test_loras_targets_are_those_that_a_run_has_by_itself():
    assert AdapterConfig().targets == LORA_TARGETS
