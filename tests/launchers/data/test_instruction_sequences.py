"""Instructions as the ranks read them: only answers are learned, and records are cut, padded or packed.

Both kinds of tokens are counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from marks import slow
from planning import Measurement, make_plan

from llmexp.errors import ConfigError
from llmexp.inputs.byte_tokens import END_OF_DOCUMENT
from llmexp.inputs.instructions import Message
from llmexp.launchers.data import loader
from llmexp.launchers.data.instructions import example
from llmexp.launchers.data.sequences import IGNORED, Sequences
from llmexp.launchers.data.tokenizers import Bytes, OfTransformers
from llmexp.training.config import InstructionsData

CPU = torch.device("cpu")
TURNS = (Message("user", "Hi"), Message("assistant", "Ho"), Message("user", "And?"), Message("assistant", "So"))


def section(**changes: object) -> InstructionsData:
    return InstructionsData.model_validate({"name": "instructions", "seq_len": 64, "pack": False} | changes)


def loaded(path: Path, *outputs: str, **changes: object) -> Sequences:
    lines = (json.dumps({"instruction": "Go", "output": output}) + "\n" for output in outputs)
    (path / "records.jsonl").write_text("".join(lines))
    return loader.load(section(files=[str(path / "records.jsonl")], **changes), 512, 9, 0)


def learned(ids: Sequence[int], labels: Sequence[int]) -> list[int]:
    assert all(label in (token, IGNORED) for token, label in zip(ids, labels, strict=True))
    return [label for label in labels if label != IGNORED]


def test_only_answers_and_their_ends_are_learned() -> None:
    one = example(TURNS, Bytes(), "bytes")
    assert (
        bytes(token for token in one.ids if token != END_OF_DOCUMENT)
        == b"user:\nHi\nassistant:\nHouser:\nAnd?\nassistant:\nSo"
    )
    assert learned(*one) == [*b"Ho", END_OF_DOCUMENT, *b"So", END_OF_DOCUMENT]


def test_records_are_padded_cut_and_left_out_and_all_of_it_is_counted(tmp_path: Path) -> None:
    prompt = len("user:\nGo\nassistant:\n")
    sequences = loaded(tmp_path, "a", "b" * 40, "c" * 99)
    batch = sequences.micro_batch(0, 3, CPU)
    assert (batch.positions, batch.real_tokens, batch.samples) == (3 * 64, (prompt + 2) + (prompt + 41) + 64, 3)
    assert batch.packing is None
    assert sequences.records == 3
    assert sequences.what_was_read == {"data_cut_records": 1, "data_left_out_records": 0, "data_read_records": 3}
    short = loaded(tmp_path, "a", "b" * 40, seq_len=prompt + 2)
    assert short.what_was_read["data_cut_records"] == 1
    with pytest.raises(ConfigError, match=f"no record whose answer begins within {prompt} tokens"):
        loaded(tmp_path, "a", seq_len=prompt)


def test_a_record_without_an_answer_within_the_length_is_left_out(tmp_path: Path) -> None:
    long = {"messages": [{"role": "user", "content": "x" * 99}, {"role": "assistant", "content": "y"}]}
    short = {"instruction": "Go", "output": "z"}
    (tmp_path / "a.jsonl").write_text(json.dumps(long) + "\n" + json.dumps(short) + "\n")
    sequences = loader.load(section(files=[str(tmp_path / "a.jsonl")]), 512, 9, 0)
    assert (len(sequences.ids), sequences.records, sequences.what_was_read["data_left_out_records"]) == (1, 1, 1)


def test_packed_records_fill_rows_and_keep_their_own_positions(tmp_path: Path) -> None:
    records = ["a", "b" * 20, "c" * 6, "d"]
    alone, together = loaded(tmp_path, *records), loaded(tmp_path, *records, pack=True)
    assert (len(alone.ids), len(together.ids), together.records) == (4, 2, 4)
    batch = together.micro_batch(0, 2, CPU)
    assert (batch.samples, batch.real_tokens) == (4, alone.micro_batch(0, 4, CPU).real_tokens)
    assert batch.packing is not None
    bounds, positions = batch.packing.bounds.tolist(), batch.packing.position_ids.flatten().tolist()
    assert bounds == [0, *torch.tensor(batch.packing.lengths).cumsum(0).tolist()]
    assert positions == [place for length in batch.packing.lengths for place in range(length)]
    assert 64 in bounds  # no record lies in two rows

    def answers(sequences: Sequences) -> list[int]:
        return sorted(sequences.labels[sequences.labels != IGNORED].tolist())

    assert answers(together) == answers(alone)
    assert all(batch.labels.flatten()[start] == IGNORED for start in bounds[:-1])


def test_the_projects_own_set_is_uneven_and_its_order_is_the_seeds() -> None:
    first, again, other = (loader.load(section(seq_len=512), 512, 200, seed) for seed in (0, 0, 1))
    assert torch.equal(first.ids, again.ids)
    assert not torch.equal(first.ids, other.ids)
    assert first.lengths is not None
    lengths = [length for (length,) in first.lengths]
    assert sum(length < 512 for length in lengths) > 100
    assert min(lengths) * 2 < max(lengths)
    text = bytes(token for token in first.ids[0].tolist() if 0 < token < 256).decode(errors="replace")
    assert "def " in text
    packed = loader.load(section(seq_len=512, pack=True), 512, 200, 0).micro_batch(0, 50, CPU)
    assert packed.real_tokens / packed.positions > 0.85 > 0.6 > sum(lengths) / (200 * 512)


TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}> {{ m.content }} <end> {% endfor %}{% if add_generation_prompt "
    "%}<assistant>{% endif %}"
)


def words(folder: Path, template: str) -> OfTransformers:
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    vocabulary = ["<unk>", "<end>", "<user>", "<assistant>", "Hi", "Ho", "And", "So"]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(vocabulary)}, unk_token="<unk>")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", unk_token="<unk>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    return OfTransformers(str(folder))


def test_a_tokenizers_own_chat_template_says_where_answers_are(tmp_path: Path) -> None:
    one = example(TURNS, words(tmp_path, TEMPLATE), "words")
    assert one.ids == [2, 4, 1, 3, 5, 1, 2, 0, 1, 3, 7, 1]
    assert learned(*one) == [5, 1, 7, 1]


def test_a_template_that_rewrites_earlier_turns_is_refused(tmp_path: Path) -> None:
    changing = words(tmp_path, "{{ messages | length }} " + TEMPLATE)
    with pytest.raises(ConfigError, match=r"data\.tokenizer=mine: its chat template rewrites earlier turns"):
        example(TURNS, changing, "mine")


def test_a_hugging_face_dataset_is_read_and_its_wrong_row_is_named(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    good = {"instruction": "Go", "input": "", "output": "Gone"}
    datasets.Dataset.from_list([good, good]).save_to_disk(tmp_path / "good")
    datasets.Dataset.from_list([good, good | {"output": ""}]).save_to_disk(tmp_path / "wrong")
    assert loader.load(section(path=str(tmp_path / "good")), 512, 9, 0).records == 2
    with pytest.raises(ConfigError, match=r"data\.path=.*wrong, row 1 of split train: output is empty"):
        loader.load(section(path=str(tmp_path / "wrong")), 512, 9, 0)


@pytest.mark.ranks
@pytest.mark.parametrize("engine", ["deepspeed", slow("megatron")])
def test_every_engine_learns_the_same_from_padded_instructions(
    observe: Callable[..., Measurement], engine: str
) -> None:
    words = (
        "hardware=cpu",
        "parallelism.dp=1",
        "precision=fp32",
        "task=finetune",
        "data.seq_len=256",
        "optimizer.lr=1e-3",
        "method=Naive",
    )
    alone, other = (
        observe({one: make_plan(*words, f"engine={one}")}, 1, "training_worker")[one][0] for one in ("torch", engine)
    )
    assert alone[-1] < alone[0] - 0.2
    assert other == pytest.approx(alone, abs=1e-5)
