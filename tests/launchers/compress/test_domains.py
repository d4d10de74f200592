"""Recovery on several domains: shares by the losses, tokens by the shares, and all of it in the run's summary."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from small_llama import MakePlan

from llmexp.compress.config import Prune
from llmexp.launchers.compress import domains, worker
from llmexp.launchers.compress.domains import Mixture, updated
from llmexp.launchers.compress.recovery import SEQUENCES
from llmexp.launchers.compress.text import SplitText
from llmexp.launchers.rank.frame import Rank

pytestmark = pytest.mark.long
EVERY, STEPS, SEQ_LEN = 5, 40, 32


def test_shares_grow_by_the_nats_above_the_reference() -> None:
    shares, references = {"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 1.0, "b": 1.0, "c": 1.0}
    found = updated(shares, {"a": 1.7, "b": 0.2, "c": 1.0}, references)
    whole = 0.5 * math.exp(0.7) + 0.3 + 0.2
    assert found == pytest.approx({"a": 0.5 * math.exp(0.7) / whole, "b": 0.3 / whole, "c": 0.2 / whole})


@pytest.fixture
def mixture(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Mix three domains, each of its own token; nats stand still, `b` half a nat above its reference."""
    texts = {
        name: SplitText([[token] * SEQ_LEN] * 4, [[[token] * SEQ_LEN]]) for token, name in enumerate("abc", start=1)
    }
    level = {1: 2.0, 2: 2.0, 3: 1.0}
    monkeypatch.setattr(
        domains, "nll_of", lambda model, parts, device: model.above.get(parts[0][0], 0) + level[parts[0][0]]
    )
    recipe = Prune(
        name="mlp",
        method="mlp",
        share=0.5,
        recovery="all",
        recovery_steps=STEPS,
        recovery_domains={name: name for name in "abc"},
        recovery_shares_every=EVERY,
        recovery_references={"c": 1.25},
    )
    return Mixture(_Model({}), texts, recipe)


class _Model:
    device = torch.device("cpu")

    def __init__(self, above: dict[int, float]) -> None:
        self.above = above


def test_a_domain_that_lags_is_read_more(mixture: Mixture) -> None:
    """`a` is at the original's loss and `c` below the one it was given: their shares go down alike."""
    lagging = _Model({2: 0.5})
    read = torch.cat(list(itertools.islice(mixture.batches(lagging, 0), STEPS)))
    assert read.shape == (STEPS * SEQUENCES, SEQ_LEN)
    drawn = {name: int((read == token).sum()) for token, name in enumerate("abc", start=1)}
    assert drawn == mixture.drawn
    assert drawn["b"] > 3 * max(drawn["a"], drawn["c"])
    rows = [row for row in mixture.history if row.domain == "b"]
    assert [row.step for row in rows] == list(range(0, STEPS, EVERY))
    grown = [math.exp(0.5 * count) for count in range(len(rows))]
    assert [row.share for row in rows] == pytest.approx([each / (each + 2) for each in grown])
    assert {(row.domain, row.nll, row.reference_nll) for row in mixture.history} == {
        ("a", 2.0, 2.0),
        ("b", 2.5, 2.0),
        ("c", 1.0, 1.25),
    }
    late = read[STEPS // 2 * SEQUENCES :]
    assert float((late == 2).float().mean()) == pytest.approx(rows[-2].share, abs=0.1)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten documents each of words and of digits."""
    folder, draw = tmp_path_factory.mktemp("texts"), random.Random(0)
    kinds = {"words": ["one ", "small ", "word ", "and ", "another "], "digits": [f"{number}" for number in range(10)]}
    for kind, parts in kinds.items():
        (folder / kind).mkdir()
        for number in range(10):
            (folder / kind / f"{number}.txt").write_text("".join(draw.choices(parts, k=400)))
    return folder


def _domains(texts: Path, **changed: Any) -> dict[str, Any]:
    found = {"words": str(texts / "words"), "digits": str(texts / "digits")} | changed
    return {"recovery": "all", "recovery_domains": found, "recovery_steps": 12, "recovery_shares_every": 4}


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("recovery", ["all", "lora"])
def test_a_run_says_where_each_domain_stood(
    recovery: str, texts: Path, trained_llama: Path, compress_plan: MakePlan, tmp_path: Path
) -> None:
    """Of digits the original knows little: to be told what it should reach makes it lag."""
    keys = _domains(texts) | {"recovery": recovery, "recovery_references": {"digits": 1.0}}
    plan = compress_plan("mlp", share=0.1, text={"calibration_sequences": 8}, **keys)
    summary = worker.work(plan, Rank(0, 0, 1, tmp_path))
    rows = {(row.domain, row.step): row for row in summary.domain_shares}
    assert sorted(rows) == [(name, step) for name in ("digits", "words") for step in (0, 4, 8, 12)]
    for step, before in ((4, 0), (8, 4)):
        shares = {name: rows[name, before].share for name in ("digits", "words")}
        nlls, references = (
            {name: getattr(rows[name, step], key) for name in shares} for key in ("nll", "reference_nll")
        )
        expected = updated(shares, nlls, references)
        assert {name: rows[name, step].share for name in shares} == pytest.approx(expected)
    assert rows["digits", 8].share > rows["digits", 4].share > rows["digits", 0].share == 0.5
    assert rows["digits", 12].tokens > rows["words", 12].tokens > rows["words", 0].tokens == 0
    total = 12 * SEQUENCES * 64
    assert summary.what_ran["domain_tokens"] == {name: rows[name, 12].tokens for name in ("words", "digits")}
    assert sum(summary.what_ran["domain_tokens"].values()) == total
    assert rows["digits", 12].nll < rows["digits", 4].nll < rows["digits", 0].nll


def test_held_out_text_that_trained_counts_as_overlap() -> None:
    judged, other = list(range(20)), list(range(20, 40))
    overlaps = [SplitText([], [[judged]], {"a": SplitText([read], [])}).overlap for read in (judged, other)]
    assert overlaps == [1.0, 0.0]
