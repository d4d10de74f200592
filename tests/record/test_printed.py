from __future__ import annotations

from pathlib import Path

from llmexp.record.printed import SHOWN, Logs, Output


def test_lines_of_all_ranks_are_counted_as_they_come(tmp_path: Path):
    logs = Logs(tmp_path)
    assert logs.read() == Output()
    (tmp_path / "log.0.txt").write_text("one\n\n  \ntwo\n")
    (tmp_path / "log.agent.txt").write_text("the launcher's\n")
    assert logs.read() == Output(2, "two", 0)
    (tmp_path / "log.12.txt").write_bytes(b"10%\r20%\rcut o")
    assert logs.read() == Output(4, "20%", 12)
    assert logs.read() == Output(4, "20%", 12)
    with (tmp_path / "log.12.txt").open("a") as file:
        file.write("ff\n")
    assert logs.read() == Output(5, "cut off", 12)


def test_what_was_printed_is_said_in_a_few_words():
    assert str(Output()) == "its ranks printed nothing"
    assert str(Output(3, "it's 7", 1)) == """its ranks printed 3 lines, the last of rank 1: "it's 7\""""
    assert str(Output(1, "x" * (SHOWN + 1))).endswith("x…'")
