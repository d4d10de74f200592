"""`llmexp init`: the answers of a user become an experiment file that plans the same runs as the words do."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

FLAGS = ("--hardware", "rtx4090", "--model", "7b", "--task", "finetune", "--compare", "L,QL", "--effort", "quick")


def ids(llmexp, *words):
    code, out, err = llmexp("plan", "--json", *words)
    assert code == 0, err
    return [json.loads(line)["plan"]["id"] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (FLAGS, ("task=finetune", "model=7b", "hardware=rtx4090", "measure=quick", "method=L,QL")),
        (
            (
                "--task",
                "serve",
                "--model",
                "tiny",
                "--hardware",
                "cpu",
                "--compare",
                "transformers",
                "--effort",
                "1,max",
            ),
            ("task=serve", "model=tiny", "hardware=cpu", "serve.rate=1,max", "engine=transformers"),
        ),
    ],
    ids=["finetune", "serve"],
)
def test_the_file_plans_what_the_words_plan(flags, words, llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = llmexp("init", *flags, "--name", "first")
    assert code == 0
    assert out.startswith("wrote my/conf/experiment/first.yaml: ")
    assert "llmexp plan --config-dir my/conf experiment=first" in out
    assert ids(llmexp, "--config-dir", "my/conf", "experiment=first") == ids(llmexp, *words)


def test_five_questions_have_usual_answers_and_are_asked_again_where_one_cannot_be(llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("pretain\n\n\ncpu\nNaive,F\nsmoke\n"))
    code, out, _ = llmexp("init")
    assert code == 0
    assert "did you mean pretrain?" in out
    assert out.count("?") >= 6
    assert "wrote my/conf/experiment/mine.yaml: 2 runs" in out


def test_a_model_of_ones_own_stands_in_the_file_as_it_was_typed(llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shape = {"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 2048}
    own = tmp_path / "own"
    own.mkdir()
    header = json.dumps({"a": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}).encode()
    (own / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))
    (own / "config.json").write_text(json.dumps(shape | {"architectures": ["LlamaForCausalLM"]}))
    words = ("--task", "pretrain", "--hardware", "cpu", "--compare", "Naive,F", "--effort", "smoke")
    code, _, err = llmexp("init", "--model", "./own", *words)
    assert code == 0, err
    assert "model: ./own" in Path("my/conf/experiment/mine.yaml").read_text()
    assert len(ids(llmexp, "--config-dir", "my/conf", "experiment=mine")) == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("--task", "serv"), "did you mean serve?"),
        (("--model", "7bb"), "did you mean 7b?"),
        (("--hardware", "rtx4091"), "did you mean rtx4090?"),
        (("--compare", "L,Z9"), "Z9"),
        (("--effort", "fast"), "choices are smoke, quick, paper"),
        (("--name", "a/b"), "takes letters, digits and _"),
        (("--task", "serve", "--compare", "transformer"), "did you mean transformers?"),
        (("--task", "serve", "--compare", "vllm", "--effort", "fast"), "takes requests a second"),
        (("--task", "pretrain", "--compare", "QL"), "QL"),
    ],
)
def test_an_answer_that_cannot_be_is_one_line_and_writes_nothing(changed, said, llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = llmexp("init", *FLAGS, *changed)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_the_missing_flag_is_named(llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = llmexp("init", "--task", "pretrain")
    assert code == 2
    assert "answer it with --model" in err


def test_a_file_that_is_there_is_kept(llmexp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert llmexp("init", *FLAGS)[0] == 0
    before = Path("my/conf/experiment/mine.yaml").read_text()
    code, _, err = llmexp("init", *FLAGS, "--compare", "L")
    assert code == 2
    assert "already exists" in err
    assert Path("my/conf/experiment/mine.yaml").read_text() == before
