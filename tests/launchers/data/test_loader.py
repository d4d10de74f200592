from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
import torch

from llmexp.errors import ConfigError
from llmexp.inputs.byte_tokens import END_OF_DOCUMENT
from llmexp.launchers.data import loader
from llmexp.launchers.data.sequences import IGNORED, Sequences
from llmexp.record.result import Batch
from llmexp.training.config import DataConfig, HfData, SyntheticData, TextData
from llmexp.training.plan.seq_len_schedule import LengthSchedule

CPU = torch.device("cpu")


KINDS = {"synthetic": SyntheticData, "text": TextData, "hf": HfData}


def section(name: str = "text", **changes: object) -> DataConfig:
    return KINDS[name].model_validate({"name": name, "seq_len": 8} | changes)


def write(folder: Path, *texts: str) -> list[str]:
    for index, text in enumerate(texts):
        (folder / f"{index}.txt").write_text(text)
    return [str(folder)]


def test_synthetic_tokens_fill_the_vocabulary_and_repeat_with_the_seed() -> None:
    first, again, other = (loader.load(section(name="synthetic", seq_len=350), 512, 20, seed) for seed in (0, 0, 1))
    assert first.ids.shape == (20, 350)
    assert first.ids.min() >= 0
    assert 500 < first.ids.max() < 512
    assert torch.equal(first.ids, again.ids)
    assert not torch.equal(first.ids, other.ids)
    assert torch.equal(first.ids, first.labels)


def test_default_text_is_the_librarys_own_source() -> None:
    sequences = loader.load(section(seq_len=256), 512, 50, 0)
    text = "".join(bytes(row[row < 256].tolist()).decode("utf-8", "replace") for row in sequences.ids)
    assert len(sequences.ids) == 50
    assert "import " in text
    assert "def " in text


def test_packed_documents_follow_each_other_with_an_end_between(tmp_path: Path) -> None:
    sequences = loader.load(section(files=write(tmp_path, "abc", "abc", "abc", "abc")), 512, 9, 0)
    a, b, c = b"abc"
    assert sequences.ids.tolist() == [[a, b, c, END_OF_DOCUMENT] * 2] * 2
    assert sequences.micro_batch(0, 2, CPU).real_tokens == 16
    assert sequences.micro_batch(0, 2, CPU).samples == sequences.records == 2
    assert loader.load(section(), 512, 9, 0).records is None  # Python's own library has more


def test_a_budget_reads_one_shuffled_order_whatever_is_loaded_beyond_it() -> None:
    few, many, other = (
        loader.load(section(), 512, number, 0).shuffled(20, seed) for number, seed in ((22, 0), (30, 0), (22, 1))
    )
    plain = loader.load(section(), 512, 30, 0)
    assert torch.equal(few.ids, many.ids[:22])
    assert not torch.equal(many.ids[:20], plain.ids[:20])
    assert sorted(many.ids[:20].tolist()) == sorted(plain.ids[:20].tolist())
    assert torch.equal(many.ids[20:], plain.ids[20:])
    assert not torch.equal(few.ids, other.ids)


def test_shuffling_keeps_labels_beside_their_ids_and_bears_too_little_text(tmp_path: Path) -> None:
    loaded = loader.load(section(files=write(tmp_path, "ab", "0123456789"), pack=False), 512, 9, 0).shuffled(9, 3)
    real = loaded.labels != IGNORED
    assert sorted(real.sum(1).tolist()) == [3, 8]
    assert torch.equal(loaded.ids[real], loaded.labels[real])


def test_unpacked_documents_are_padded_and_padding_is_not_real(tmp_path: Path) -> None:
    sequences = loader.load(section(files=write(tmp_path, "ab", "0123456789"), pack=False), 512, 9, 0)
    batch = sequences.micro_batch(0, 2, CPU)
    assert (batch.positions, batch.real_tokens) == (16, 3 + 8)
    short = next(
        row
        for row, labels in zip(batch.input_ids.tolist(), batch.labels.tolist(), strict=True)
        if labels[-1] == IGNORED
    )
    assert short == [*b"ab", END_OF_DOCUMENT, 0, 0, 0, 0, 0]


def test_replicas_share_one_global_order() -> None:
    ids = torch.arange(48).reshape(24, 2)
    sequences = Sequences(ids, ids)

    def rows(replicas: int, micro: int, accumulation: int) -> list[list[int]]:
        batch = Batch(micro=micro, accumulation=accumulation, global_=replicas * micro * accumulation)
        ranks = [islice(loader.batches(sequences, replica, replicas, batch, CPU), 2) for replica in range(replicas)]
        steps = list(zip(*ranks, strict=True))
        return [
            sorted(int(p.input_ids[i, 0]) // 2 for passes in step for p in passes for i in range(micro))
            for step in steps
        ]

    assert rows(1, 4, 1) == rows(2, 2, 1) == rows(2, 1, 2) == rows(1, 1, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_growing_sequences_are_cut_to_the_length_of_their_step(tmp_path: Path) -> None:
    batch = Batch(micro=2, accumulation=1, global_=2)
    full = loader.load(section(), 512, 6, 0)
    full.length_of_step = LengthSchedule((4, 8), warmup_steps=1, steps=1).at
    cut = [passes[0] for passes in islice(loader.batches(full, 0, 1, batch, CPU), 3)]
    assert [(one.positions, one.real_tokens, one.samples) for one in cut] == [(8, 8, 2), (16, 16, 2), (16, 16, 2)]
    assert torch.equal(cut[0].input_ids, full.ids[:2, :4])
    assert torch.equal(cut[1].input_ids, full.ids[2:4])
    short = loader.load(section(files=write(tmp_path, "ab", "0123456789"), pack=False), 512, 9, 0)
    short.length_of_step = LengthSchedule((4, 8), warmup_steps=1, steps=1).at
    assert [passes[0].real_tokens for passes in islice(loader.batches(short, 0, 1, batch, CPU), 2)] == [3 + 4, 3 + 8]


def test_sequences_come_round_again() -> None:
    ids = torch.arange(6).reshape(3, 2)
    assert Sequences(ids, ids).micro_batch(2, 2, CPU).input_ids.tolist() == [[4, 5], [0, 1]]


def test_a_file_pattern_without_a_match_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing matches .*none"):
        loader.load(section(files=[str(tmp_path / "none*")]), 512, 1, 0)


def test_too_little_text_and_too_many_tokens_are_errors(tmp_path: Path) -> None:
    files = write(tmp_path, "abc")
    with pytest.raises(ConfigError, match="less than one sequence of 8 tokens"):
        loader.load(section(files=files), 512, 1, 0)
    with pytest.raises(ConfigError, match="bytes has 257 tokens, but the model's vocabulary only 100"):
        loader.load(section(files=files), 100, 1, 0)


def test_a_local_transformers_tokenizer_is_used(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"<unk>": 0, "<end>": 1, "to": 2, "be": 3}, unk_token="<unk>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", unk_token="<unk>").save_pretrained(
        tmp_path / "words"
    )
    (tmp_path / "text").mkdir()
    files = write(tmp_path / "text", "to be or to be")
    sequences = loader.load(section(files=files, tokenizer=str(tmp_path / "words"), seq_len=6), 512, 1, 0)
    assert sequences.ids.tolist() == [[2, 3, 0, 2, 3, 1]]


def test_jsonl_reads_as_a_hugging_face_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps({"body": "abcdefg"}) + "\n" for _ in range(3)))
    sequences = loader.load(section(name="hf", path=str(path), field="body"), 512, 3, 0)
    assert sequences.ids.tolist() == [[*b"abcdefg", END_OF_DOCUMENT]] * 3
