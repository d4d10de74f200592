"""One run as a row: what its plan says, how it stands or ended, what it measured, and the paper's cell of the same work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.misfit import misfit
from llmexp.record.reading import read_json
from llmexp.record.result import Batch, Metric, RunResult, RunStatus, Stability
from llmexp.reference import DTYPE, LORA_RANK, LORA_TARGETS, OPTIMIZER, SEQ_LEN, WORLD_SIZE, PaperCell, paper_cell

HERE = "here"
OOM = RunStatus.OOM.value
# Where there is no allocator to ask (cpu), the process's memory says nothing of a small model; the bytes of its training state do.
MEMORY_METRICS = ("peak_allocated_bytes", "training_state_bytes")
# What is said of a measurement that cannot be relied on, by its verdict.
DOUBTS = {"unstable": "unstable", "unknown": "not known whether stable"}
# What the paper's runs of pre-training have in common: task, sequence length, accumulation, no layout but data parallelism.
PAPERS = ("pretrain", SEQ_LEN, 1, "")


@dataclass(frozen=True)
class Row:
    """A run as planned, and its result where it has one; `state` is 'planned', 'running' or a RunStatus."""

    folder: RunFolder
    plan: dict[str, Any]
    state: str
    reason: str
    result: RunResult | None

    @cached_property
    def work(self) -> dict[str, str]:
        """What runs must share, apart from the method, for their speeds to be compared; by the words that a heading uses."""
        config, batch = self.plan["config"], self.batch
        said = "declared " if self.program else ""  # by whoever runs a program of their own; llmexp has not built it
        told = _told_by_line(self.plan)
        return {
            "task": config["task"]["name"],
            "model": said + self.model,
            "hardware": self.hardware,
            "engine": f"script {self.program}" if self.program else config["engine"]["name"],
            "ranks": str(self.world_size),
            "layout": self.layout,
            "batch": said * (not told & {"samples", "tokens"}) + _passes(batch),
            "seq_len": said * ("tokens" not in told) + str(self.seq_len),
            "data": _sequences(config["data"]),
            "precision": said + config["precision"]["name"],
            "optimizer": said + config["optimizer"]["name"],
            "runtime": _runtime(config),
        }

    @property
    def program(self) -> str:
        """The whole command of a program of engine=script; empty for other engines."""
        engine = self.plan["config"]["engine"]
        return str(engine["options"].get("command") or "") if engine["name"] == "script" else ""

    @property
    def layout(self) -> str:
        """The degrees that are not 1, without dp, and the pipeline's schedule; empty for data parallelism alone."""
        dims = self.plan["dims"]
        degrees = {"tp": dims["tp"], "pp": dims["pp"], "virtual stages": dims.get("virtual_stages", 1), "cp": dims["cp"], "ep": dims["ep"]}
        more = [dims[key] for key in ("cp_kind", "schedule") if dims.get(key)] + ["sequence"] * bool(dims.get("sequence"))
        return " ".join([f"{name} {degree}" for name, degree in degrees.items() if degree > 1] + more)

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.plan["config"]["model"]["name"])

    @property
    def method(self) -> str:
        """The canonical name of the method."""
        return str(self.plan["method"])

    @property
    def hardware(self) -> str:
        """The hardware's name."""
        return str(self.plan["config"]["hardware"]["name"])

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        dims = self.plan["dims"]
        return int(dims["dp"] * dims["tp"] * dims["pp"] * dims["cp"])

    @property
    def batch(self) -> Batch:
        """Samples per rank and pass, passes, samples per step."""
        return Batch.model_validate(self.plan["batch"])

    @property
    def seq_len(self) -> int:
        """Positions of one sample."""
        return int(self.plan["config"]["data"]["seq_len"])

    @property
    def command(self) -> str:
        """The shell line that repeats the run."""
        return str(self.plan["rerun_command"])

    @property
    def is_control(self) -> bool:
        """Whether it is another run of the sweep once more."""
        return bool(self.plan["config"].get("control"))

    @property
    def partly_trained(self) -> bool:
        """Whether 4-bit weights stay frozen, so that the run is not full pre-training."""
        return "Q" in self.method.split("+")

    @property
    def fully_pretrained(self) -> bool:
        """Whether all parameters train from random weights."""
        return self.work["task"] == "pretrain" and not self.partly_trained

    @property
    def distributions(self) -> dict[str, str]:
        """Versions of what was installed where the ranks ran; empty before the run has ended."""
        return dict(self.result.environment.get("distributions", {})) if self.result else {}

    def metric(self, name: str) -> Metric | None:
        """A metric of a run that was measured to its end; None for every other one."""
        return self.result.metrics.get(name) if self.result and self.state == RunStatus.SUCCESS else None

    @property
    def stability(self) -> Stability | None:
        """The verdict on the measurement; None where there is none, or its result is older than verdicts."""
        return self.result.stability if self.result and self.state == RunStatus.SUCCESS else None

    @property
    def doubt(self) -> str:
        """Why the measurement cannot be relied on, or why nobody knows whether it can; empty where nothing speaks against it."""
        judged = self.stability
        return f"{DOUBTS[judged.verdict]}: {'; '.join(judged.reasons)}" if judged and judged.verdict in DOUBTS else ""

    @cached_property
    def memory(self) -> tuple[str, float] | None:
        """The metric that tells this run's memory, and its bytes."""
        known = ((name, self.metric(name)) for name in MEMORY_METRICS)
        return next(((name, metric.mean) for name, metric in known if metric), None)

    @cached_property
    def paper(self) -> PaperCell | None:
        """The paper's cell of the same engine, method, model, hardware, samples per GPU, GPUs, passes and sequence length."""
        found = paper_cell(self.model, self.method, self.hardware, self.batch.micro, self.work["engine"])
        rank = self.plan["config"].get("adapter", {}).get("rank", LORA_RANK)
        here = (self.work["task"], self.seq_len, self.batch.accumulation, self.layout, self.world_size, rank)
        return found if found and not self.work["data"] and here == (found.task, *PAPERS[1:], WORLD_SIZE, LORA_RANK) else None

    @property
    def unlike_paper(self) -> str:
        """What the paper's cell was measured without, as far as it says or its memory tells: then there is no ratio. Empty where nothing is known."""
        config = self.plan["config"]
        states = {name: config["precision"].get(name) for name in ("parameters", "gradients", "master", "moments")}
        targets = config.get("adapter", {}).get("targets")
        differences = {
            f"precision={config['precision']['name']}": set(states.values()) != {DTYPE},
            f"optimizer={config['optimizer']['name']}": config["optimizer"]["name"] != OPTIMIZER,
            f"adapter.targets={','.join(targets or ())}": self.work["task"] == "finetune" and tuple(targets or LORA_TARGETS) != LORA_TARGETS,
            "kernels.liger": config.get("kernels", {}).get("liger", False),
            "memory.activation_offload": config.get("memory", {}).get("activation_offload", False),
        }
        return ", ".join(word for word, differs in differences.items() if differs)

    def finetuned(self, name: str) -> Metric | None:
        """A metric that the table shows of fine-tuning only."""
        return self.metric(name) if self.work["task"] == "finetune" else None

    @property
    def peak_phase(self) -> str:
        """The phase in which the allocator's peak came; empty where nobody knows, or there is no allocator to ask."""
        return str(self.result.what_ran.get("peak_phase") or "") if self.result and self.metric("peak_allocated_bytes") else ""

    @property
    def memory_over_paper(self) -> float | None:
        """Peak allocated bytes over the paper's peak; None where only the training state is known, or the paper measured something else."""
        peak = self.metric("peak_allocated_bytes")
        return peak.mean / self.paper.memory_bytes if peak and self.paper and self.paper.memory_bytes and not self.unlike_paper else None


def read_row(folder: RunFolder) -> Row:
    """Read a run's folder at any moment of its life; raises RecordError where its files are not what they should be."""
    plan, result = read_plan(folder), folder.result()
    state, reason = folder.standing(result)
    if result and result.status is RunStatus.SUCCESS and result.evidence != "measured":
        state, reason = result.evidence, f"{result.evidence}, not measured"
    row = Row(folder, plan, state, " ".join(reason.split()), result)
    try:
        _ = row.work
    except (KeyError, TypeError, ValueError) as error:
        raise misfit(folder.plan_path, "plan", error) from None
    return row


def read_plan(folder: RunFolder) -> dict[str, Any]:
    """Read plan.json as it stands, without judging it; raises RecordError."""
    try:
        plan = read_json(folder.plan_path)
    except (FileNotFoundError, ValueError) as error:
        raise misfit(folder.plan_path, "plan", error) from None
    except OSError as error:
        raise RecordError(f"{folder.plan_path} cannot be read: {error}") from None
    if not isinstance(plan, dict) or (missing := {"config", "method", "dims", "batch", "rerun_command"} - plan.keys()):
        raise misfit(folder.plan_path, "plan", KeyError(*sorted(missing) if isinstance(plan, dict) else ("config",)))
    return plan


def _passes(batch: Batch) -> str:
    return str(batch.micro) if batch.accumulation == 1 else f"{batch.micro} x {batch.accumulation} passes"


def _sequences(data: dict[str, Any]) -> str:
    """How sequences are filled where padding is among them, and how they grow; empty for full ones of one length. Older plans say less."""
    padded = data["name"] == "instructions" or (data["name"] != "synthetic" and not data.get("pack", True))
    filled = f"{data['name']} {'packed' if data.get('pack') else 'padded'}" if padded else ""
    growth = data.get("seq_len_schedule")
    return f"growing {' '.join(map(str, growth))}" if growth else filled


def _told_by_line(plan: dict[str, Any]) -> set[str]:
    """What a printed line of a program tells of its steps; one that reports by the hook tells its tokens."""
    line = plan.get("engine_config", {}).get("line")
    return set(re.findall(r"\(\?P<(\w+)>", line)) if line else {"tokens"}


def _runtime(config: dict[str, Any]) -> str:
    """The runtime's name and what tells it from others of that name; older plans have none."""
    runtime = config.get("runtime", {"name": HERE})
    image, python = str(runtime.get("image") or ""), str(runtime.get("python") or "")
    place = image.rpartition("/")[2] or python.removesuffix("/bin/python").rpartition("/")[2]
    variables = (f"{name}={value}" for name, value in runtime.get("environment", {}).items())
    return " ".join(filter(None, (runtime["name"], place, *runtime.get("modules", ()), *variables)))
