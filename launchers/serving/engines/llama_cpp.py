"""llama.cpp behind llama-cpp-python's server, on any CPU; it reads the model from one GGUF file.

What stands here was tried with llama-cpp-python 0.3.36: docs/results/serving.md has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from llmexp.record.plan import Command
from llmexp.serving.config import ServingRunConfig
from llmexp.serving.engine import HOST, SERVED_NAME, THREADS, Knob, ServingEngine, ServingSpec, value
from llmexp.serving.plan.reported_memory import ReportedNumber
from llmexp.serving.plan.server_plan import RequestForm, ServerPlan

# The number of fp32 among the types of GGML: without it the KV cache is fp16, and tokens differ from those of others.
_FP32 = "0"
# By src/llama-kv-cache.cpp, whose cells are tokens.
KV_TOKENS = (ReportedNumber(where="log", pattern=r"size = +[\d.]+ MiB \( *(\d+) cells", words="its log, as cells"),)


class LlamaCppEngine(ServingEngine):
    """It computes one request at a time; its file has an end token that is never drawn."""

    name = "llama_cpp"
    kv_tokens_told = KV_TOKENS
    takes_checkpoints = False
    modules = ("llama_cpp", "fastapi", "uvicorn")
    installed_by = (
        "`make serve-venv SERVER=llama_cpp` installs it into its own environment; or set engine.python to one that "
        "has it"
    )
    distributions = ("llama-cpp-python",)
    knobs: ClassVar[Mapping[str, Knob]] = {
        "max_batch_tokens": value("--n_batch"),
        "gpu_layers": value("--n_gpu_layers"),
        "flash_attention": value("--flash_attn"),
        "mmap": value("--use_mmap"),
    }

    def needed_modules(self, config: ServingRunConfig) -> tuple[str, ...]:
        """Return also what writes the model's file."""
        return (*super().needed_modules(config), *([] if config.serve.address else ["gguf"]))

    def cannot(self, served: ServingSpec) -> str | None:
        """Its GGUF file is written for dense Llama models in fp32."""
        if served.model.architecture != "llama":
            return f"engine=llama_cpp serves only Llama models here, and model={served.model.name} is not one"
        if served.dtype != "fp32":
            return "engine=llama_cpp: llmexp writes its random weights only in fp32: set precision=fp32"
        if served.devices > 1:
            return "engine=llama_cpp serves a model from one device: set parallelism.tp=1"
        return None

    def server(self, served: ServingSpec) -> ServerPlan:
        """Return the server's command; without interrupt_requests=false a new request would cut off the running one."""
        argv = ["{python}", "-m", "llama_cpp.server", "--model", "{folder}/model.gguf", "--model_alias", SERVED_NAME]
        argv += ["--host", HOST, "--port", "{port}", "--n_ctx", str(served.positions), "--seed", str(served.seed)]
        argv += ["--interrupt_requests", "false", "--type_k", _FP32, "--type_v", _FP32, *self.flags(served)]
        argv += ["--n_threads", THREADS, "--n_threads_batch", THREADS]
        form = RequestForm.completions(token_ids=False, model=SERVED_NAME, repeat_penalty=1.0)
        return ServerPlan(
            command=Command(argv=argv), ready="/v1/models", key_variable="API_KEY", form=form, weights="gguf"
        )


ENGINE = LlamaCppEngine()
