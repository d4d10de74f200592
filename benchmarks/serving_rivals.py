"""`python -m benchmarks serving --rivals PYTHON` puts the same loads on one paced server by llmexp and other clients.

The server sends an event each 10 ms and nothing else, so that what differs is the clients' own. They take turns, on one
core; the server has another. A rival is measured where one of the interpreters has its package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.figure import Figure
from benchmarks.interval import interval, paired_ratio
from benchmarks.rivals import has_package
from benchmarks.serving import server_on
from llmexp.launchers.serving.weights.model_folder import FolderRequest, ensure_model_folder
from llmexp.record.folder import find_runs
from llmexp.schema import DenseModel

PAUSE_S, PROMPT, TOKENS, REQUESTS, WARMUP = 0.01, 64, 32, 150, 20
OURS = "llmexp"
# Unit and factor of each metric as it is shown.
METRICS = {
    "output_tokens_per_s": ("tokens/s", 1.0),
    "ttft_p50_s": ("ms", 1e3),
    "tpot_p50_s": ("ms", 1e3),
    "inter_token_p50_s": ("ms", 1e3),
    "end_to_end_p50_s": ("ms", 1e3),
}
FROM_SEND = {"ttft_p50_s": "ttft_from_send_p50_s", "end_to_end_p50_s": "end_to_end_from_send_p50_s"}
# A load by its name, and the rate or the concurrency of it.
LOADS: dict[str, tuple[str, int]] = {"20/s, constant": ("rate", 20), "32 at a time": ("concurrency", 32)}
Found = Mapping[str, float]
Measure = Callable[[str, tuple[str, int], Path], Found]


def serving_rivals(folder: Path, rivals: str, rounds: int = 3) -> Iterator[Figure]:
    """Measure both loads, the clients in turn, and each figure of llmexp over that of the others."""
    tokenizer = ensure_model_folder(FolderRequest(model=_tiny(), dtype="fp32", seed=0, weights="none"), folder)
    clients: dict[str, Measure] = {OURS: _ours} | _rivals(rivals, tokenizer)
    server_core, client_core = sorted(os.sched_getaffinity(0))[-2:]
    os.sched_setaffinity(0, {client_core})
    with server_on(server_core, ["--pause-s", str(PAUSE_S)]) as port:
        for name, load in LOADS.items():
            found: dict[str, list[Found]] = {client: [] for client in clients}
            for place in range(rounds):
                for client in list(clients)[:: -1 if place % 2 else 1]:
                    own = folder / f"{client.split()[0]}.{load[0]}.{place}"
                    own.mkdir()
                    found[client].append(clients[client](f"http://127.0.0.1:{port}", load, own))
            yield from _figures(name, found, rounds)


def _figures(load: str, found: Mapping[str, list[Found]], rounds: int) -> Iterator[Figure]:
    for client, measured in found.items():
        for metric, (unit, factor) in METRICS.items():
            name = metric if unit == "tokens/s" else metric.removesuffix("_s")
            values = [one[metric] for one in measured]
            yield Figure(f"{load}, {client}, {name}", unit, interval([factor * value for value in values]), rounds)
            if client != OURS:
                over = paired_ratio([one[metric] for one in found[OURS]], values)
                yield Figure(f"{load}, {name} of llmexp over {client}", "x", over, rounds)


def _ours(url: str, load: tuple[str, int], folder: Path) -> Found:
    kind, value = load
    command = [sys.executable, "-m", "llmexp", "task=serve", "engine=vllm", "model=tiny", "hardware=cpu"]
    command += [f"serve.address={url}", f"serve.prompt.tokens={PROMPT}", f"serve.output.tokens={TOKENS}"]
    command += [f"serve.requests={REQUESTS}", f"serve.warmup_requests={WARMUP}", "serve.arrivals=constant"]
    command += ["serve.rate=[]", f"serve.{kind}=[{value}]", "tracking=none"]
    _run(command, folder)
    (run,) = find_runs(folder / "outputs")
    result = run.result()
    if not (result and result.points and result.points[0].metrics):
        raise RuntimeError(f"llmexp measured nothing: {result.reason if result else 'no result'}")
    metrics = result.points[0].metrics
    # The others count from the sending, llmexp's own table from when a request was due.
    return {name: metric.mean for name in METRICS if (metric := metrics[FROM_SEND.get(name, name)])}


def _vllm(python: str, tokenizer: Path, url: str, load: tuple[str, int], folder: Path) -> Found:
    """Measure `vllm bench serve`, past a command line that does not know the package's name for CPUs."""
    command = [python, "-c", BENCH_SERVE, "--backend", "openai", "--base-url", url, "--model", OURS]
    command += ["--endpoint", "/v1/completions", "--tokenizer", str(tokenizer), "--dataset-name", "random"]
    command += ["--random-input-len", str(PROMPT), "--random-output-len", str(TOKENS), "--ignore-eos"]
    command += ["--num-prompts", str(REQUESTS), "--num-warmups", str(WARMUP), "--temperature", "0"]
    command += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--result-filename", "result.json"]
    command += _of_vllm(load)
    _run(command, folder)
    told = json.loads((folder / "result.json").read_text())
    names = {"ttft_p50_s": "ttft", "tpot_p50_s": "tpot", "inter_token_p50_s": "itl", "end_to_end_p50_s": "e2el"}
    milliseconds = {name: told[f"median_{short}_ms"] / 1e3 for name, short in names.items()}
    return {"output_tokens_per_s": told["output_throughput"]} | milliseconds


def _of_vllm(load: tuple[str, int]) -> list[str]:
    kind, value = load
    if kind == "concurrency":
        return ["--max-concurrency", str(value)]
    return ["--request-rate", str(value), "--burstiness", "1000000"]


def _aiperf(python: str, tokenizer: Path, url: str, load: tuple[str, int], folder: Path) -> Found:
    """Measure `aiperf profile`."""
    kind, value = load
    command = [python, "-m", "aiperf", "profile", "--model", OURS, "--url", url]
    command += ["--endpoint-type", "completions", "--streaming"]
    command += ["--tokenizer", str(tokenizer), "--request-count", str(REQUESTS), "--ui", "none"]
    command += ["--use-server-token-count"]
    command += ["--warmup-request-count", str(WARMUP), "--output-artifact-dir", str(folder)]
    command += ["--synthetic-input-tokens-mean", str(PROMPT), "--output-tokens-mean", str(TOKENS)]
    command += ["--output-tokens-stddev", "0", "--synthetic-input-tokens-stddev", "0"]
    command += ["--concurrency", str(value)] if kind == "concurrency" else ["--request-rate", str(value)]
    command += [] if kind == "concurrency" else ["--request-rate-mode", "constant"]
    # Offline it takes a folder for the name of a model that it looks up; else a folder is a folder, and asks nobody.
    _run(command, folder, offline=False)
    told = json.loads((folder / "profile_export_aiperf.json").read_text())
    names = {
        "ttft_p50_s": "time_to_first_token",
        "tpot_p50_s": "inter_token_latency",
        "end_to_end_p50_s": "request_latency",
    }
    milliseconds = {name: told[key]["p50"] / 1e3 for name, key in names.items()}
    # Its inter-token latency is the mean of a request, which others call the time per output token.
    return {
        "output_tokens_per_s": told["output_token_throughput"]["avg"],
        "inter_token_p50_s": milliseconds["tpot_p50_s"],
    } | milliseconds


RIVALS = {"vllm bench serve": ("vllm", _vllm), "aiperf": ("aiperf", _aiperf)}
BENCH_SERVE = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
if __name__ == "__main__":
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    main(parser.parse_args())
"""


def usual_tokenizer(folder: Path) -> Path:
    """Write a small tokenizer of real text: aiperf makes its prompts of a play, which llmexp's words cannot write."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    library = Path(sysconfig.get_path("stdlib"))
    made.train_from_iterator([path.read_text(errors="replace") for path in sorted(library.glob("a*.py"))], trainer)
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def _rivals(pythons: str, tokenizer: Path) -> dict[str, Measure]:
    """Return the clients that these interpreters, with commas between them, have; raises SystemExit for none."""
    tokenizers = {"aiperf": usual_tokenizer(tokenizer.with_name("usual"))}
    found: dict[str, Measure] = {
        name: partial(measure, python, tokenizers.get(name, tokenizer))
        for name, (package, measure) in RIVALS.items()
        for python in pythons.split(",")
        if has_package(python, package)
    }
    if not found:
        raise SystemExit(f"--rivals {pythons}: it has none of {', '.join(RIVALS)}")
    return found


def _run(command: list[str], folder: Path, offline: bool = True) -> None:
    hub = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"} if offline else {}
    with (folder / "output.txt").open("w") as output:
        done = subprocess.run(
            command, cwd=folder, env=os.environ | hub | {"DO_NOT_TRACK": "1"}, stdout=output, stderr=output, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(folder / 'output.txt').read_text()[-4000:]}")


def _tiny() -> DenseModel:
    """Return the sizes that the tokenizer of words is made for."""
    return DenseModel(
        name="tiny",
        architecture="llama",
        vocab_size=512,
        hidden_size=128,
        intermediate_size=344,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        max_positions=4096,
    )
