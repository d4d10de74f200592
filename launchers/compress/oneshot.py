"""Compresses a model with llm-compressor, as a program in an environment where llmexp is not installed.

Called as `PYTHON oneshot.py job.json`. The job names the model, the method with its scheme, the tokens and the folder
to write; the answer, or why there is none, is a JSON file beside it.
"""

from __future__ import annotations

import json
import math
import re
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

IN_BF16 = ("mxfp4", "nvfp4")
NEEDS_NO_TEXT = ("rtn",)
# The names of experts' matrices, once llm-compressor has taken the stack of a layer's experts apart.
OF_EXPERTS = r"re:.*\.experts\.\d+\.(gate|up|down)_proj$"
_OF_MIXTRAL = re.compile(r"(\.experts\.\d+\.)(gate|up|down)_proj\b")
LIBRARIES = ("llmcompressor", "compressed-tensors", "transformers", "torch", "auto-round")
# Of the calibration text, in a step that trains norms.
SEQUENCES = 8
_Json = dict[str, Any]


def scheme_of(job: _Json) -> _Json:
    """Return the job's scheme as llm-compressor's modifiers take it; raises ValueError for one that nobody has."""
    weights = job["weights"]
    if weights in IN_BF16:
        return _four_bit_floats(weights, job["activations"])
    kind, bits = ("float", 8) if weights == "fp8" else ("int", int(weights.removeprefix("int")))
    group = job["group_size"]
    shared = "tensor" if job["activations"] == "fp8_static" else "group" if group else "channel"
    form = {"num_bits": bits, "type": kind, "strategy": shared, "symmetric": job["symmetric"], "dynamic": False}
    if shared == "group":
        form["group_size"] = group
    return {"weights": form} | _activations(job["activations"])


def _four_bit_floats(weights: str, activations: str | None) -> _Json:
    if activations not in (None, "fp4"):
        raise ValueError(f"compress.activations={activations} does not go with {weights} weights: choose null or fp4")
    from compressed_tensors.quantization import preset_name_to_scheme

    name = weights.upper() + ("" if activations else "A16")
    preset: _Json = preset_name_to_scheme(name, ["Linear"]).model_dump(exclude_none=True)
    return {part: preset[part] for part in ("weights", "input_activations") if part in preset}


def _activations(name: str | None) -> _Json:
    if name is None:
        return {}
    if name == "fp4":
        raise ValueError("compress.activations=fp4 goes with mxfp4 or nvfp4 weights alone")
    form: _Json = {"num_bits": 8, "type": "int" if name == "int8" else "float", "symmetric": True}
    if name == "fp8_static":
        return {"input_activations": form | {"strategy": "tensor", "dynamic": False, "observer": "static_minmax"}}
    return {"input_activations": form | {"strategy": "token", "dynamic": True}}


def recipe_of(job: _Json) -> list[Any]:
    """Return the modifiers of the job's method, in the order in which they work."""
    method, options = job["method"], job.get("modifier", {})
    if method in ("sparsegpt", "wanda"):
        pattern = "0:0" if job["pattern"] == "free" else job["pattern"]
        # They name a matrix with a dot behind it when they look whether to leave it out.
        given = {"sparsity": job["sparsity"], "mask_structure": pattern, "ignore": [r"re:.*lm_head\.?$"]}
        return [_sparsifier(method)(**given, targets=["Linear"], **options)]
    targets = [OF_EXPERTS if job.get("layers") == "experts" else "Linear"]
    scheme = {"config_groups": {"group_0": {"targets": targets} | scheme_of(job)}}
    return _quantizers(method, job, {"ignore": ["lm_head"]} | options | scheme)


def _sparsifier(method: str) -> Callable[..., Any]:
    from llmcompressor.modifiers.pruning import SparseGPTModifier, WandaPruningModifier

    return {"sparsegpt": SparseGPTModifier, "wanda": WandaPruningModifier}[method]


def _quantizers(method: str, job: _Json, options: _Json) -> list[Any]:
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier

    if method == "rtn":
        return [QuantizationModifier(**options)]
    if method == "gptq":
        return [GPTQModifier(**options)]
    if method == "smoothquant":
        from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

        return [SmoothQuantModifier(smoothing_strength=job["smoothing"]), GPTQModifier(**options)]
    if method == "awq":
        from llmcompressor.modifiers.transform.awq import AWQModifier

        return [AWQModifier(), QuantizationModifier(**options)]
    from llmcompressor.modifiers.autoround import AutoRoundModifier

    return [AutoRoundModifier(**{"enable_torch_compile": False} | options)]


def nll_of(model: Any, parts: Sequence[Sequence[int]], device: str) -> float:
    """Return the nats of a predicted token, over all parts of the held-out documents; each part is read alone."""
    nats, count = 0.0, 0
    for part in parts:
        tokens = torch.tensor([part], device=device)
        with torch.no_grad():
            logits = model(input_ids=tokens, use_cache=False).logits[0, :-1].float()
        nats += float(torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="sum"))
        count += len(part) - 1
    return nats / count


def loaded(job: _Json) -> Any:
    """Load the job's model on its device, in bf16 where the scheme needs it, else as it was saved."""
    from transformers import AutoModelForCausalLM

    dtype = torch.bfloat16 if job.get("weights") in IN_BF16 else "auto"
    options = {"dtype": dtype, "trust_remote_code": job["trust_remote_code"]}
    return AutoModelForCausalLM.from_pretrained(job["model"], **options).to(job["device"]).eval()


def compress(job: _Json, model: Any) -> None:
    """Run the recipe over the calibration sequences."""
    from datasets import Dataset
    from llmcompressor import oneshot

    rows = job["calibration"]
    text = {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}
    given = {
        "dataset": Dataset.from_dict(text),
        "processor": object(),  # it asks for a tokenizer, and uses none: the sequences are tokens
        "max_seq_length": max(map(len, rows)),
        "num_calibration_samples": len(rows),
    }
    static = job.get("activations") in ("fp8_static", "fp4")
    own = model.dtype
    if widened := job["method"] == "autoround" and own != torch.bfloat16:
        _round_in_fp32(model)
    if job["method"] == "awq" and job["device"] == "cpu":
        _leave_unpinned()
    oneshot(model=model, recipe=recipe_of(job), **({} if job["method"] in NEEDS_NO_TEXT and not static else given))
    if widened:
        model.to(own)


def _leave_unpinned() -> None:
    """Have AWQ keep activations in ordinary memory: pinning it for copies to a GPU fails where there is none."""
    from llmcompressor.pipelines.cache import IntermediatesCache

    IntermediatesCache.pin_memory = lambda *_, **__: None


def _round_in_fp32(model: Any) -> None:
    """Have AutoRound work in fp32: on its own it makes each layer bf16, beside which nothing else of a model runs."""
    from llmcompressor.modifiers.autoround import base

    model.float()
    base.AutoRound = partial(base.AutoRound, amp=False)


def tune_norms(job: _Json, model: Any) -> _Json:
    """Train the gains of norms to the original's distribution of the next token; return its KL at first and at last.

    Nearest to Norm Tweaking (arXiv 2309.02784), which compares what layers put out. Gains are trained in fp32 beside
    the model's own dtype.
    """
    original, kls = loaded(job), []
    gains = [gain for name, gain in model.named_parameters() if "norm" in name]
    masters = [gain.detach().float().clone() for gain in gains]
    optimizer = torch.optim.Adam(masters, lr=job["norm_lr"])
    order = torch.Generator().manual_seed(job["seed"])
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for gain in gains:
        gain.requires_grad_(True)
    for _ in range(job["norm_steps"]):
        chosen = torch.randperm(len(job["calibration"]), generator=order)[:SEQUENCES].tolist()
        kl = sum(_kl(original, model, job["calibration"][number], job["device"]) for number in chosen) / len(chosen)
        kls.append(float(kl))
        kl.backward()
        for master, gain in zip(masters, gains, strict=True):
            master.grad, gain.grad = gain.grad.float(), None
        optimizer.step()
        with torch.no_grad():
            for master, gain in zip(masters, gains, strict=True):
                gain.copy_(master)
    return {"norm_kl_first": kls[0], "norm_kl_last": kls[-1]}


def _kl(original: Any, model: Any, tokens: Sequence[int], device: str) -> Any:
    """Return the mean KL a token of a sequence, in nats, from the original's distribution to the model's."""
    read = torch.tensor([tokens], device=device)
    with torch.no_grad():
        wanted = original(input_ids=read, use_cache=False).logits[0].float().log_softmax(-1)
    given = model(input_ids=read, use_cache=False).logits[0].float().log_softmax(-1)
    return torch.nn.functional.kl_div(given, wanted, reduction="batchmean", log_target=True)


def answer(job: _Json) -> _Json:
    """Do the job; return what it took and what the compressed model says in memory, before it is saved."""
    model = loaded(job)
    begin_s = time.perf_counter()
    compress(job, model)
    tuned = tune_norms(job, model) if job.get("norm_steps") else {}
    took_s = time.perf_counter() - begin_s
    peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    nll = nll_of(model, job["held_out"], job["device"])
    if not math.isfinite(nll):
        raise ValueError(f"the compressed model's loss is {nll} before it is saved")
    model.save_pretrained(job["folder"], save_compressed=True, **format_of(job))
    if model.config.model_type == "mixtral":
        rename_experts(Path(job["folder"]))
    return {
        "compress_time_s": took_s,
        "compress_peak_rss_bytes": peak_rss_bytes,
        "nll_saved": nll,
        "dtype": str(model.dtype).removeprefix("torch."),
        "versions": {name: version for name in LIBRARIES if (version := _version(name))},
        "tuned": tuned,
    }


def rename_experts(folder: Path) -> None:
    """Give a Mixtral's experts the names that its checkpoints have, by which alone they are loaded."""
    from safetensors.torch import load_file, save_file

    for path in folder.glob("*.safetensors"):
        renamed = {_OF_MIXTRAL.sub(_mixtral_name, name): tensor for name, tensor in load_file(path).items()}
        save_file(renamed, path, metadata={"format": "pt"})
    for path in folder.glob("*.index.json"):
        path.write_text(_OF_MIXTRAL.sub(_mixtral_name, path.read_text()))
    config = folder / "config.json"
    config.write_text(config.read_text().replace("(gate|up|down)_proj$", "w[123]$"))


def _mixtral_name(found: re.Match[str]) -> str:
    return found[1] + {"gate": "w1", "down": "w2", "up": "w3"}[found[2]]


def format_of(job: _Json) -> _Json:
    """Return the format for weights alone that have zero points; transformers 5.23 does not load these packed."""
    has_zeros = not job.get("symmetric", True) and job["activations"] is None
    return {"quantization_format": "int-quantized"} if has_zeros else {}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def main(path: Path) -> int:
    """Read the job, write its answer to job["answer"], return the exit code; the model's seed is the job's."""
    job = json.loads(path.read_text())
    torch.manual_seed(job["seed"])
    torch.set_num_threads(job["threads"])
    try:
        told = answer(job)
    except (ValueError, RuntimeError, ImportError, NotImplementedError, OSError) as error:
        _write(Path(job["answer"]), {"error": f"{type(error).__name__}: {error}"})
        raise
    _write(Path(job["answer"]), told)
    return 0


def _write(path: Path, told: _Json) -> None:
    """Write the answer whole or not at all, whenever this process is killed."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(told) + "\n")
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
