from llmexp.report.columns import Column
from llmexp.report.same_cells import part_same

MODEL = Column("model", ("7b", "7b"), left=True)
METHOD = Column("method", ("F", "R"), left=True)
RATE = Column("tokens/s", ("1", "1"))
MFU = Column("MFU\u00a0%", ("40.0", "40.0"), dispensable=6)


def test_what_differs_and_what_always_stays_is_shown():
    assert part_same([MODEL, METHOD, RATE, MFU]) == ([METHOD, RATE], "same in every row: model 7b; MFU % 40.0")


def test_one_row_keeps_its_columns():
    alone = [Column("model", ("7b",), left=True)]
    assert part_same(alone) == (alone, "")
