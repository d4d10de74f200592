"""What would name a person, a machine or a place is replaced, however it is written; what says what ran stays."""

from __future__ import annotations

import time

import pytest

from llmexp.bundle.anonymous import Anonymizer

HOST, USER, HOME = "node17.cluster.example.org", "ada", "/home/ada"


@pytest.fixture
def anonymizer() -> Anonymizer:
    return Anonymizer([("host", HOST), ("user", USER), ("path", HOME)])


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (r"serve.address=http\://inner.example.org\:9000", "inner"),
        (r"serve.address=http\://localhost.inner.example.org\:9000", "inner"),
        (r"data=file\:///srv/people/grace/x.jsonl", "grace"),
        ("s3://lab-bucket/models/x", "lab-bucket"),
        ("HTTP://Inner.example.org/x", "Inner"),
        ("http://localhost@inner.example.org/", "inner"),
        ("ran on NODE17 and Node17.Cluster.Example.Org", "ode17"),
        ("of Ada and ADA", "da"),
        ("//home/grace/x.py", "grace"),
        ("/usr/bin/../../home/grace/x.py", "grace"),
        ("/proc/self/../../srv/grace", "grace"),
        ("origin gitlab:grace/secret.git", "grace"),
        ("git@gitlab.example.org:grace/secret", "grace"),
        ("link/ether 0a-1b-2c-3d-4e-5f", "1b-2c"),
        ("link/ether 0a:1b:2c:3d:4e:5f", "1b:2c"),
        ("grace@example.org", "grace"),
    ],
)
def test_a_name_is_hidden_however_it_is_written(anonymizer: Anonymizer, text: str, hidden: str) -> None:
    found = anonymizer.text(text)
    assert hidden not in found.removeprefix("of ").removeprefix("serve.address=")
    assert anonymizer.text(text) == found


@pytest.mark.parametrize("path", ["//home/grace/x.py", "/usr/bin/../../home/grace/x.py", "/usr/lib/../../root/key"])
def test_a_value_that_is_a_path_is_hidden_wherever_its_dots_lead(anonymizer: Anonymizer, path: str) -> None:
    assert anonymizer.record({"folder": path})["folder"].startswith("/path-")


@pytest.mark.parametrize(
    "text",
    [
        "/usr/bin/python3 -m llmexp method=F+R+Z3",
        "http://127.0.0.1:8000/v1/completions",
        r"http\://localhost\:8000/v1",
        "torch 2.13.0, 12:30:05, 3/4 of 7B, a:b, x=1:2",
        "engine.options.zero_optimization.stage=3",
    ],
)
def test_what_says_what_ran_stays(anonymizer: Anonymizer, text: str) -> None:
    assert anonymizer.text(text) == text


def test_one_server_has_one_name_with_and_without_hydras_backslashes(anonymizer: Anonymizer) -> None:
    plain, escaped = "http://inner.example.org:9000", r"http\://inner.example.org\:9000"
    assert anonymizer.text(plain) == anonymizer.text(escaped)


@pytest.mark.parametrize("part", ["a", "A", "1", "a+", "a.", "a-", "a@", ":", "a:", "/", "a/", "~", "é", "0a-", "_A"])
def test_a_long_word_takes_no_more_time_a_letter_than_a_short_one(anonymizer: Anonymizer, part: str) -> None:
    def letters_per_s(length: int) -> float:
        text = part * (length // len(part))
        taken_s = []
        for _ in range(3):
            begin_s = time.process_time()
            anonymizer.text(text)
            taken_s.append(time.process_time() - begin_s)
        return length / min(taken_s)

    # Twenty times as long; were it quadratic, twenty times as slow.
    assert letters_per_s(40_000) > letters_per_s(2_000) / 8
