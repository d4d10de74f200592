from __future__ import annotations

import pytest

from llmexp.record.program_names import NAME_CHARACTERS, short_names


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        (["/a/b/train.py --lr 1e-3 --x"], ["train.py"]),
        (
            ["/a/b/train.py --lr 1e-3 --x", "/a/b/train.py --lr 2e-3 --x", "/a/b/train.py --x"],
            ["train.py --lr 1e-3", "train.py --lr 2e-3", "train.py"],
        ),
        (["train.py --lr=1 --flag", "train.py --flag"], ["train.py --lr=1", "train.py"]),
        (
            ["train.py config/a.py --n -1 2", "train.py config/b.py --n -1 3"],
            ["train.py config/a.py --n -1 2", "train.py config/b.py --n -1 3"],
        ),
        (["/a/mine/train.py --lr 1", "/a/yours/train.py --lr 2"], ["mine/train.py", "yours/train.py"]),
        (["-m package.train --lr 1", "train.py --lr 2"], ["package.train", "train.py"]),
        (["train.py one two", "train.py two one"], ["train.py one two", "train.py two one"]),
        (
            ["train.py --data=/a/long/path/to/some/records/of/a", "train.py"],
            ["train.py --data=/a/long/…ome/records/of/a", "train.py"],
        ),
        ([], []),
    ],
)
def test_a_program_is_named_by_its_file_and_what_tells_its_runs_apart(commands: list[str], names: list[str]):
    assert list(short_names(commands).values()) == names


def test_a_name_is_cut_only_as_far_as_it_still_tells_programs_apart():
    alike = [f"train.py --data=/a/long/path/to/some/{name}/records/of/a/kind" for name in ("one", "two")]
    assert len(set(short_names(alike).values())) == 2
    many = [f"train.py {' '.join(f'--option_{number}={value}' for number in range(20))}" for value in (1, 2)]
    names = list(short_names(many).values())
    assert len(set(names)) == 2
    assert all(len(name) <= NAME_CHARACTERS for name in names)
