"""The environment that ranks get, beside what the user has set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from llmexp.launch import prepare
from llmexp.launch.prepare import environment

OLDER, NEWER = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in (OLDER, NEWER, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    def install(version: str | None) -> None:
        distributions = {"torch": version} if version else {}
        found = SimpleNamespace(installed=SimpleNamespace(distributions=distributions))
        monkeypatch.setattr(prepare, "Runtime", lambda plan: found)

    return install


@pytest.mark.parametrize(
    ("version", "name", "more"),
    [
        *((version, OLDER, "") for version in ("2.6.0", "2.8.1+cu128", None)),
        ("2.11.0+cu130", NEWER, ""),
        ("2.13.0+cu130", NEWER, ",pinned_max_cached_size_mb:1024"),
    ],
)
def test_cudas_allocator_may_grow_its_segments_by_the_name_that_this_torch_reads(
    tiny_plan: Any, installed: Any, version: str | None, name: str, more: str
) -> None:
    installed(version)
    found = environment(tiny_plan(hardware__name="a800"), {})
    assert {key: found[key] for key in (OLDER, NEWER) if key in found} == {name: f"expandable_segments:True{more}"}


def test_torchs_allocator_knows_the_word_for_pinned_blocks_of_their_own_size() -> None:
    with pytest.raises(ValueError, match="stoull"):
        torch._C._accelerator_setAllocatorSettings("pinned_max_cached_size_mb:many")


def test_a_users_own_setting_and_a_cpu_have_none_of_it(
    tiny_plan: Any, installed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("2.11.0")
    assert not {OLDER, NEWER} & environment(tiny_plan(), {}).keys()
    monkeypatch.setenv(OLDER, "max_split_size_mb:512")
    found = environment(tiny_plan(hardware__name="a800"), {})
    assert (found[OLDER], NEWER in found) == ("max_split_size_mb:512", False)
