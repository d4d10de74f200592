"""Every engine of servers: its command, its knobs and what it refuses."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from importlib import import_module
from math import ceil
from pathlib import Path
from pkgutil import iter_modules

import pytest
from served_models import small_models

from llmexp.errors import ConfigError
from llmexp.launchers.profiled_server import guarded_cli
from llmexp.launchers.serving import engines as serving
from llmexp.launchers.serving.client.completions import body_of
from llmexp.serving.config.load import ServedAdapters
from llmexp.serving.engine import ServingEngine, ServingSpec

ROOT = Path(__file__).parents[4]
TINY, MIXTURE = small_models(intermediate_size=344)
SERVED = ServingSpec(TINY, "fp32", "cpu", positions=544, requests=16)
GPU = replace(SERVED, device="cuda", dtype="bf16")
COMMAND = {"command": "my-server {folder} --port {port}"}
OWN_VALUES = {"program": ("podman",)}
NAMES = [found.name for found in iter_modules(serving.__path__) if found.name != "base"]


def engine(name: str) -> ServingEngine:
    found: ServingEngine = import_module(f"llmexp.launchers.serving.engines.{name}").ENGINE
    return found


def server_words(name: str, served: ServingSpec = SERVED) -> list[str]:
    knobs = COMMAND | dict(served.knobs) if name == "command" else served.knobs
    return engine(name).server(replace(served, knobs=knobs)).command.argv


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_has_the_name_of_its_file_and_serves(name: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert (engine(name).name, engine(name).tasks) == (name, ("serve",))
    assert extras.keys() >= set(engine(name).extras.split(","))
    assert engine(name).installed_by


@pytest.mark.parametrize("name", NAMES)
def test_a_command_has_a_port_and_is_never_open_to_other_machines(name: str) -> None:
    words = server_words(name)
    assert sum("{port}" in word for word in words) == 1
    assert any("{folder}" in word for word in words)
    assert "0.0.0.0" not in words
    if engine(name).server(replace(GPU, knobs=COMMAND if name == "command" else {})).container:
        assert words[words.index("--publish") + 1].startswith("127.0.0.1:{port}:")
        assert "host" not in words, "the container has a network of its own"
        assert words[words.index("--volume") + 1].endswith(":ro")
    else:
        assert name == "command" or words[words.index("--host") + 1] == "127.0.0.1"


@pytest.mark.parametrize("name", NAMES)
def test_a_knob_that_an_engine_has_not_is_a_reason_that_names_those_it_has(name: str) -> None:
    reason = engine(name).unsupported(replace(GPU, knobs={"warp_drive": 1}))
    assert reason
    assert reason.startswith(f"engine={name} has no warp_drive: it has ")
    assert all(knob in reason for knob in engine(name).knobs)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "command"])
def test_every_knob_changes_the_command(name: str) -> None:
    plain = server_words(name, GPU)
    for knob in engine(name).knobs:
        values = OWN_VALUES.get(knob, (True, False))
        changed = [server_words(name, replace(GPU, knobs={knob: given})) for given in values]
        assert any(words != plain for words in changed), knob


def test_speculative_decoding_of_sglang_is_told_by_the_names_of_its_flags() -> None:
    given = {"algorithm": "NGRAM", "num_draft_tokens": 8}
    words = server_words("sglang", replace(GPU, knobs={"speculative": given}))
    assert words[-4:] == ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8"]
    assert server_words("sglang", replace(GPU, knobs={"speculative": "NGRAM"}))[-2:] == words[-4:-2]


def test_the_cache_of_transformers_holds_all_requests_at_a_time_on_a_cpu_and_is_its_own_on_a_gpu() -> None:
    words = server_words("transformers")
    blocks, page = (int(words[words.index(flag) + 1]) for flag in ("--cb-num-blocks", "--cb-block-size"))
    assert blocks >= 16 * ceil(544 / page)
    assert "--cb-num-blocks" not in server_words("transformers", GPU)
    assert "--continuous-batching" in server_words("transformers", GPU)
    one_by_one = server_words("transformers", replace(GPU, knobs={"continuous_batching": False}))
    assert "--continuous-batching" not in one_by_one
    larger = server_words("transformers", replace(SERVED, knobs={"block_size": 256}))
    assert larger[larger.index("--cb-block-size") + 1] == "256"
    assert int(larger[larger.index("--cb-num-blocks") + 1]) >= 16 * 3


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_server_reads_the_weights_of_all_engines_unless_it_may_draw_its_own(name: str) -> None:
    shared, own = (engine(name).server(replace(GPU, own_weights=own)) for own in (False, True))
    assert (shared.weights, own.weights) == ("safetensors", "none")
    words = [plan.command.argv for plan in (shared, own)]
    assert [found[found.index("--load-format") + 1] for found in words] == ["safetensors", "dummy"]


def test_the_cache_of_vllm_is_bounded_on_a_cpu() -> None:
    large = replace(SERVED, positions=4096, requests=1024)
    words = server_words("vllm", large)
    assert words[words.index("--kv-cache-memory-bytes") + 1] == str(8 * 2**30)
    assert "--kv-cache-memory-bytes" not in server_words("vllm", GPU)


def test_the_copies_stages_and_parts_of_a_model_are_told_to_vllm() -> None:
    words = server_words("vllm", replace(GPU, devices=2, stages=3, replicas=4))
    layout = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
    assert [words[words.index(flag) + 1] for flag in layout] == ["2", "3", "4"]


def test_processes_of_vllm_share_the_cores_of_a_cpu() -> None:
    environments = [engine("vllm").server(served).command.env for served in (SERVED, replace(SERVED, replicas=2))]
    assert ["VLLM_CPU_SIM_MULTI_NUMA" in found for found in environments] == [False, True]
    assert "VLLM_CPU_SIM_MULTI_NUMA" not in engine("vllm").server(replace(GPU, replicas=2)).command.env


def test_a_mapping_is_given_to_vllm_as_json() -> None:
    given = {"method": "ngram", "num_speculative_tokens": 3}
    for speculative in (given, json.dumps(given)):
        words = server_words("vllm", replace(SERVED, knobs={"speculative": speculative}))
        assert json.loads(words[words.index("--speculative-config") + 1]) == given


def test_requests_have_priorities_only_where_they_are_scheduled_by_them() -> None:
    forms = [engine("vllm").server(replace(SERVED, knobs={"scheduling": by})).form for by in ("priority", "fcfs")]
    assert [json.loads(body_of(form, [1, 2, 3], 4)).get("priority") for form in forms] == [7, None]


def test_requests_ask_for_every_adapter_in_turn() -> None:
    plan = engine("vllm").server(replace(SERVED, adapters=ServedAdapters(number=2, rank=4)))
    names = [json.loads(body_of(plan.form, [1], 1, number))["model"] for number in range(5)]
    assert names == ["adapter-0", "adapter-1"] * 2 + ["adapter-0"]
    words = plan.with_adapters(Path("/adapters")).command.argv
    begin = words.index("--lora-modules") + 1
    assert words[begin : begin + 2] == ["adapter-0=/adapters/0", "adapter-1=/adapters/1"]
    assert words[words.index("--max-lora-rank") + 1] == "8"
    assert words[words.index("--max-loras") + 1] == "2"


@pytest.mark.parametrize(
    ("name", "served", "reason"),
    [
        ("transformers", replace(SERVED, stages=2), "not support pipeline parallelism here: set parallelism.pp=1"),
        ("transformers", replace(SERVED, replicas=2), "no replicas behind one address here: set parallelism.dp=1"),
        ("llama_cpp", replace(SERVED, adapters=ServedAdapters(number=2)), "not support adapters here"),
        ("transformers", replace(GPU, devices=2), "from one device"),
        ("llama_cpp", replace(SERVED, devices=2), "from one device"),
        ("llama_cpp", replace(SERVED, model=MIXTURE), "only Llama models"),
        ("llama_cpp", replace(SERVED, dtype="bf16"), "set precision=fp32"),
        ("sglang", SERVED, "needs a GPU here"),
        ("vllm", replace(SERVED, model=TINY.model_copy(update={"head_dim": 8})), "not model.head_dim=8"),
        ("vllm", replace(GPU, adapters=ServedAdapters(number=1, rank=513)), "adapters up to serve.adapters.rank=512"),
        ("vllm", replace(SERVED, stages=2), "set parallelism.pp=1"),
        ("vllm", replace(SERVED, knobs={"cuda_graphs": True}), "cuda_graphs=True: there are none"),
        ("vllm", replace(SERVED, knobs={"memory_fraction": 0.5}), "memory_fraction=0.5: the KV cache gets the bytes"),
        ("vllm", replace(SERVED, knobs={"weights_offload_gb": 4}), "weights_offload_gb=4: the weights are in the host"),
        ("vllm", replace(SERVED, knobs={"kv_offload_gb": 4}), "kv_offload_gb=4: the server ends"),
        ("vllm", replace(SERVED, knobs={"kv_dtype": "int8_per_token_head"}), "choices are auto and fp8"),
        ("vllm", replace(GPU, devices=2, knobs={"expert_parallel": True}), "has no experts"),
        ("vllm", replace(GPU, model=MIXTURE, knobs={"expert_parallel": True}), "over devices: set parallelism.tp=2"),
        (
            "vllm",
            replace(SERVED, model=MIXTURE, devices=2, knobs={"expert_parallel": True}),
            "ends at the first request",
        ),
        ("vllm", replace(SERVED, knobs={"quantization": "fp8"}), "quantization=fp8: the server has no kernel for it"),
        ("lightllm", SERVED, "needs a GPU"),
        ("lightllm", replace(GPU, knobs={"prefix_caching": False}), "prefix_caching=false needs chunked_prefill=false"),
        ("lightllm", replace(GPU, knobs={"chunked_prefill_tokens": 545}), "is more than a batch holds, 544: set fewer"),
        (
            "lightllm",
            replace(GPU, knobs={"chunked_prefill": False, "max_batch_tokens": 100}),
            "a batch holds 100 of 544 positions: set max_batch_tokens to as many",
        ),
        (
            "lightllm",
            replace(GPU, knobs={"kv_dtype": "fp8"}),
            "not support kv_dtype=fp8 for these models: choices are int8",
        ),
        ("transformers", replace(SERVED, samples=True), "takes the likeliest token whatever is asked"),
        ("transformers", replace(SERVED, samples=True, is_running=True), "leave serve.sampling out"),
        ("llama_cpp", replace(SERVED, samples=True, answers=2), "leave serve.sampling.n out"),
        ("vllm", replace(GPU, beams=2, knobs={"scheduling": "priority"}), "serve.sampling.beams has no priorities"),
        ("sglang", replace(GPU, samples=True, answers=2, beams=2), "has no beam search here: leave serve.sampling.bea"),
        ("tgi", SERVED, "needs a GPU"),
        ("tgi", replace(GPU, dtype="fp32"), "set serve.dtype=bf16"),
        ("tgi", replace(GPU, model=TINY.model_copy(update={"architecture": "qwen3"})), "does not support Qwen3"),
    ],
)
def test_what_an_engine_cannot_do_is_a_reason(name: str, served: ServingSpec, reason: str) -> None:
    assert reason in str(engine(name).unsupported(served))


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("transformers", SERVED),
        ("llama_cpp", SERVED),
        ("vllm", SERVED),
        ("vllm", replace(SERVED, knobs={"cuda_graphs": False, "kv_dtype": "fp8", "weights_offload_gb": 0})),
        ("vllm", replace(SERVED, devices=2, replicas=2)),
        ("vllm", GPU),
        ("vllm", replace(GPU, devices=2, stages=2, replicas=2, adapters=ServedAdapters(number=2))),
        ("sglang", GPU),
        ("vllm", replace(GPU, samples=True)),
        ("vllm", replace(GPU, model=MIXTURE, devices=2, knobs={"expert_parallel": True})),
        ("lightllm", GPU),
        ("lightllm", replace(GPU, knobs={"prefix_caching": False, "chunked_prefill": False, "kv_dtype": "int8"})),
        ("tgi", GPU),
    ],
)
def test_what_an_engine_can_do_is_not_refused(monkeypatch: pytest.MonkeyPatch, name: str, served: ServingSpec) -> None:
    monkeypatch.setattr("llmexp.launchers.serving.engines.vllm.instruction_sets", lambda: {"avx512f"})
    assert engine(name).unsupported(served) is None


@pytest.mark.parametrize(
    ("knobs", "positions", "chunk"),
    [
        ({}, 544, "544"),
        ({}, 8192, None),
        ({"max_batch_tokens": 2048}, 8192, "2048"),
        ({"max_batch_tokens": 8192}, 544, None),
        ({"chunked_prefill_tokens": 256}, 544, "256"),
        ({"chunked_prefill": False}, 544, None),
    ],
)
def test_a_batch_of_lightllm_holds_a_chunk(knobs: dict[str, int], positions: int, chunk: str | None) -> None:
    """Its server ends otherwise; without a word it cuts prompts into chunks of 4096 tokens."""
    words = server_words("lightllm", replace(GPU, knobs=knobs, positions=positions))
    flag = "--chunked_prefill_size"
    assert [words[at + 1] for at, word in enumerate(words) if word == flag] == ([chunk] if chunk else [])


def test_a_command_without_a_port_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine.options.command='my-server' has no \{port\}: give a command"):
        engine("command").server(replace(SERVED, knobs={"command": "my-server"}))


def test_a_command_says_what_its_server_takes() -> None:
    knobs = COMMAND | {"token_ids": True, "ignore_eos": True, "ready": "/v1/models", "metrics": "/metrics"}
    plan = engine("command").server(replace(SERVED, knobs=knobs))
    assert plan.command.argv == ["my-server", "{folder}", "--port", "{port}"]
    assert (plan.ready, plan.metrics, plan.form.token_ids) == ("/v1/models", "/metrics", True)
    assert plan.form.body["ignore_eos"] is True


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_with_a_page_of_metrics_names_what_is_read_of_it(name: str) -> None:
    knobs = {**COMMAND, "metrics": "/metrics"} if name == "command" else {}
    plan = engine(name).server(replace(GPU, knobs=knobs))
    assert bool(plan.metrics) == bool(plan.metric_names)
    if plan.metrics:
        assert {"running", "waiting", "generated_tokens", "prompt_tokens"} <= plan.metric_names.keys()
        assert all(plan.metric_names.values())


def test_a_command_without_a_page_names_nothing() -> None:
    plan = engine("command").server(replace(SERVED, knobs=COMMAND))
    assert (plan.metrics, plan.metric_names) == (None, {})


@pytest.mark.parametrize(("program", "gpus"), [("docker", "--gpus all"), ("podman", "--device nvidia.com/gpu=all")])
def test_a_container_gets_the_gpus_as_its_program_passes_them(program: str, gpus: str) -> None:
    plan = engine("tgi").server(replace(GPU, knobs={"program": program, "prefix_caching": False, "image": "mine:1"}))
    assert (plan.container, plan.command.argv[:2]) == (program, [program, "run"])
    before, _, inside = " ".join(plan.command.argv).partition(" mine:1 ")
    assert gpus in before
    assert "--env PREFIX_CACHING=false" in before
    assert inside.startswith("--model-id /model ")
    assert "--pull never" in before, "a download is no part of a server's start"


def test_another_program_for_containers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"program=lxc cannot start a container: choices are docker, podman"):
        engine("tgi").server(replace(GPU, knobs={"program": "lxc"}))


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_runs_already_has_the_form_of_its_engine_on_any_machine(name: str) -> None:
    started = engine(name).server(replace(SERVED, knobs=COMMAND if name == "command" else {}))
    running = replace(SERVED, is_running=True)
    assert engine(name).unsupported(running) is None
    assert engine(name).server(running).form == started.form


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_is_profiled_by_routes_or_is_skipped(name: str) -> None:
    knobs = COMMAND if name == "command" else {}
    asked = replace(GPU if name in ("sglang", "tgi", "lightllm") else SERVED, profile=True, knobs=knobs)
    reason, plan = engine(name).unsupported(asked), engine(name).server(asked)
    if engine(name).has_profiler:
        assert reason is None
        assert plan.profiler
        assert "{trace}" in " ".join([*plan.command.argv, *map(str, plan.profiler.start_body.values())])
        assert engine(name).server(replace(asked, profile=False)).profiler is None
    else:
        assert f"serve.profile=true: llmexp knows no profiler of engine={name}" in str(reason)


def test_a_server_that_runs_already_is_not_profiled() -> None:
    reason = engine("vllm").unsupported(replace(SERVED, profile=True, is_running=True))
    assert reason == (
        "serve.profile=true: llmexp knows no profiler of a server that runs already; transformers, vllm and "
        "sglang have one"
    )


def test_vllm_traces_pythons_calls_where_they_tell_the_modules() -> None:
    option = "--profiler-config.torch_profiler_with_stack="
    assert option + "false" in server_words("vllm", replace(SERVED, profile=True))
    assert option + "true" in server_words("vllm", replace(SERVED, profile=True, knobs={"compile": False}))
    assert not [word for word in server_words("vllm") if "profiler" in word]


def test_a_key_is_handed_to_a_server_by_the_variable_that_it_reads() -> None:
    plans = {name: engine(name).server(replace(GPU, knobs=COMMAND if name == "command" else {})) for name in NAMES}
    variables = {name: plan.key_variable for name, plan in plans.items() if plan.key_variable}
    assert variables == {
        "command": "LLMEXP_API_KEY",
        "llama_cpp": "API_KEY",
        "tgi": "API_KEY",
        "transformers": "LLMEXP_SERVER_KEY",
        "vllm": "VLLM_API_KEY",
    }


def test_transformers_asks_for_a_key_where_llmexp_is_in_its_environment() -> None:
    own, elsewhere = (engine("transformers").server(replace(GPU, elsewhere=place)) for place in (False, True))
    assert own.command.argv[2] == guarded_cli.__name__
    # A server that looks for its key elsewhere would find none, and answer everybody.
    assert own.key_variable == guarded_cli.KEY
    assert (elsewhere.command.argv[2], elsewhere.key_variable) == ("transformers.cli.transformers", None)
