"""torchtitan's own trainer on Llama 2 of 7B and random words; its options follow, as after `-m torchtitan.train`.

torchtitan 0.2.2 has neither this shape nor such words, and is given both before it starts.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from pathlib import Path

VOCABULARY = 32_000
# Short ones, so that each step tokenizes one; with longer ones some steps take longer.
TEXTS, WORDS = 320, 4_000


def main(scratch: Path) -> None:
    """Give torchtitan the model, the data and the options, and let it train."""
    _write_tokenizer(scratch / "tokenizer.json")
    _write_texts(scratch / "texts" / "train.jsonl")
    sys.argv[1:1] = [
        "--model.name=llama3",
        "--model.flavor=llama2_7b",
        f"--model.hf_assets_path={scratch}",
        "--training.dataset=c4_test",  # its only data set that is read from a folder
        f"--training.dataset_path={scratch / 'texts'}",
        f"--job.dump_folder={scratch}",
    ]
    os.environ["HF_DATASETS_CACHE"] = str(scratch)
    from torchtitan import train  # reads sys.argv while it is imported
    from torchtitan.models.llama3 import TransformerModelArgs, llama3_args

    llama3_args["llama2_7b"] = TransformerModelArgs(vocab_size=VOCABULARY)  # its other defaults are Llama 2's
    train.main(train.Trainer)


def _write_tokenizer(path: Path) -> None:
    """Write one that makes a token of each word."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = Tokenizer(WordLevel({str(number): number for number in range(VOCABULARY)}, unk_token="0"))
    words.pre_tokenizer = WhitespaceSplit()
    words.save(str(path))


def _write_texts(path: Path) -> None:
    """Write texts of words that are drawn evenly."""
    path.parent.mkdir()
    drawn = random.Random(0)
    texts = [" ".join(map(str, drawn.choices(range(VOCABULARY), k=WORDS))) for _ in range(TEXTS)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
