"""Other clients of servers beside llmexp: what is read of what they say, and which are found."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks import serving_rivals as module
from benchmarks.serving import server_on
from benchmarks.serving_rivals import METRICS, OURS, serving_rivals

BENCH = {"output_throughput": 100.0} | {f"median_{name}_ms": 20.0 for name in ("ttft", "tpot", "itl", "e2el")}
EXPORT = "profile_export_aiperf.json"
AIPERF = {"output_token_throughput": {"avg": 100.0}} | {
    name: {"p50": 20.0} for name in ("time_to_first_token", "inter_token_latency", "request_latency")
}


def _python(folder: Path, package: str, file: str, told: object) -> str:
    """Write an interpreter that has one package only, whose command leaves a file."""
    lines = [
        f"#!{sys.executable}",
        "import sys",
        "if 'find_spec' in sys.argv[2]:",
        f"    sys.exit(sys.argv[3] != {package!r})",
        f"open({file!r}, 'w').write({json.dumps(told)!r})",
    ]
    program = folder / f"python-{package}"
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    return str(program)


def test_an_environment_without_a_client_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="it has none of vllm bench serve, aiperf"):
        module._rivals(_python(tmp_path, "other", "", {}), tmp_path / "tokenizer")


@pytest.mark.slow
def test_llmexp_measures_a_paced_server(tmp_path: Path) -> None:
    with server_on(min(os.sched_getaffinity(0)), ["--pause-s", "0.01"]) as port:
        found = module._ours(f"http://127.0.0.1:{port}", ("concurrency", 32), tmp_path)
    assert found.keys() == METRICS.keys()
    assert found["tpot_p50_s"] >= 0.0095
    assert found["end_to_end_p50_s"] >= 31 * 0.0095


def test_clients_take_turns_and_each_figure_of_ours_stands_over_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ours", lambda url, load, folder: dict.fromkeys(METRICS, 0.01))
    monkeypatch.setattr(module, "ensure_model_folder", lambda wanted, cache: tmp_path)
    monkeypatch.setattr(module.os, "sched_setaffinity", lambda process, cores: None)
    pythons = [_python(tmp_path, "vllm", "result.json", BENCH), _python(tmp_path, "aiperf", EXPORT, AIPERF)]
    found = {each.name: each for each in serving_rivals(tmp_path, ",".join(pythons), rounds=2)}
    for client in ("vllm bench serve", "aiperf"):
        assert found[f"20/s, constant, {client}, ttft_p50"].measured.mean == pytest.approx(20)
        assert found[f"32 at a time, ttft_p50 of llmexp over {client}"].measured.mean == pytest.approx(0.5)
    assert len(found) == 2 * 5 * len(METRICS)
    assert f"20/s, constant, {OURS}, tpot_p50" in found
