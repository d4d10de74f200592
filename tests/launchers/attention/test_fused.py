from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from llmexp.errors import ConfigError
from llmexp.launchers.attention import causal, fused
from llmexp.launchers.attention.varlen import sdpa_records
from llmexp.launchers.data.packing import model_inputs
from llmexp.launchers.data.sequences import Example, Sequences

STAND_INS = Path(__file__).parents[1] / "pretended" / "packages"
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(STAND_INS))
    yield
    sys.modules.pop("flash_attn", None)


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 4, 24, 16), *torch.randn(2, 2, 2, 24, 16).unbind()


def test_the_package_is_called_in_its_own_layout(package: None) -> None:
    query, key, value = inputs()
    found, _ = fused.package(nn.Identity(), query, key, value, None, scaling=0.3)
    expected, _ = fused.sdpa_flash(nn.Identity(), query, key, value, None, scaling=0.3)
    torch.testing.assert_close(found, expected)


def test_the_package_attends_within_each_record(package: None) -> None:
    query, key, value = inputs()
    rows = [[Example([1] * length, [1] * length) for length in row] for row in ((5, 13), (24,))]
    options = model_inputs(Sequences.of_rows(rows, 24, isolated=True).micro_batch(0, 2, CPU))
    for name in ("input_ids", "labels", "position_ids"):
        options.pop(name)
    found, _ = fused.package_records(nn.Identity(), query, key, value, None, **options)
    expected, _ = sdpa_records(nn.Identity(), query, key, value, None, **options)
    torch.testing.assert_close(found, expected)


def test_the_package_computes_fa2_on_a_gpu_where_it_is_installed(package: None) -> None:
    assert fused.attention_of("fa2", GPU)[1] is fused.package
    assert fused.attention_of("fa2", GPU, records=True)[1] is fused.package_records
    assert fused.attention_of("fa2", CPU)[1] is fused.sdpa_flash
    assert fused.attention_of("auto", GPU)[1] is fused.sdpa_fused


def test_flash_attn_4_alone_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flash_attn" / "cute").mkdir(parents=True)
    (tmp_path / "flash_attn" / "cute" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not fused.has_package()
    assert fused.attention_of("fa2", GPU)[1] is fused.sdpa_flash


def test_no_name_makes_transformers_look_for_a_package(package: None) -> None:
    names = [fused.attention_of(kernel, GPU)[0] for kernel in ("auto", "fa2", "cudnn")]
    assert len({*names}) == 3
    assert not any("flash" in name for name in names)


@pytest.mark.parametrize("kernel", ["fa3", "fa4"])
def test_another_package_that_is_not_there_is_named(kernel: fused.Kernel) -> None:
    with pytest.raises(ConfigError, match=f"kernels.flash={kernel}: torch .* has no {kernel.upper()} here"):
        fused.attention_of(kernel, GPU)


@pytest.mark.parametrize(
    ("version", "positions", "safe"), [(91002, 350, False), (91002, 384, True), (91501, 350, True), (None, 350, False)]
)
def test_cudnn_is_left_out_where_it_is_not_safe(
    monkeypatch: pytest.MonkeyPatch, version: int | None, positions: int, safe: bool
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: version)
    assert causal.cudnn_is_safe(positions) == safe
    query = torch.zeros(1, 1, positions, 8)
    refusal = ConfigError if not safe else RuntimeError  # cuDNN's kernel takes no tensors of a CPU
    with pytest.raises(refusal):
        fused.sdpa_cudnn(nn.Identity(), query, query, query, None)
