"""Other clients of servers beside llmexp: what is read of what they say, and which are found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import serving_rivals as module
from benchmarks.serving_rivals import METRICS, OURS, serving_rivals

BENCH = """#!{python}
import json, sys
told = dict(output_throughput=100.0, **{{f"median_{{name}}_ms": 20.0 for name in ("ttft", "tpot", "itl", "e2el")}})
json.dump(told, open("result.json", "w"))
"""


def test_an_environment_without_a_client_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="has neither vllm nor aiperf"):
        module._rivals(str(tmp_path / "python"), tmp_path)


def test_clients_take_turns_and_each_figure_of_ours_stands_over_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ours", lambda url, load, folder: dict.fromkeys(METRICS, 0.01))
    monkeypatch.setattr(module, "ensure_model_folder", lambda wanted, cache: tmp_path)
    monkeypatch.setattr(module.os, "sched_setaffinity", lambda process, cores: None)
    program = tmp_path / "vllm"
    program.write_text(BENCH.format(python=sys.executable))
    program.chmod(0o755)
    found = {each.name: each for each in serving_rivals(tmp_path, str(tmp_path / "python"), rounds=2)}
    assert found["20/s, constant, vllm bench serve, ttft_p50_s"].measured.mean == pytest.approx(0.02)
    assert found["32 at a time, ttft_p50_s of llmexp over vllm bench serve"].measured.mean == pytest.approx(0.5)
    assert len(found) == 2 * 3 * len(METRICS)
    assert f"20/s, constant, {OURS}, tpot_p50_s" in found


def test_the_figures_of_aiperf_are_read_by_their_names(tmp_path: Path) -> None:
    program = tmp_path / "aiperf"
    names = ("time_to_first_token", "inter_token_latency", "request_latency")
    told = {name: {"p50": 20.0} for name in names} | {"output_token_throughput": {"avg": 100.0}}
    program.write_text(f"#!{sys.executable}\nopen('profile_export_aiperf.json', 'w').write({json.dumps(told)!r})\n")
    program.chmod(0o755)
    found = module._aiperf(program, tmp_path, "http://127.0.0.1:1", ("concurrency", 2), tmp_path)
    assert found.keys() == METRICS.keys()
    assert (found["output_tokens_per_s"], found["ttft_p50_s"]) == (100.0, 0.02)
