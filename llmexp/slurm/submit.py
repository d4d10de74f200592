"""Submit plans as SLURM jobs through submitit; runs with the same request form one array."""

from __future__ import annotations

import math
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from shlex import join, quote
from subprocess import CalledProcessError
from typing import Any

from llmexp.errors import ConfigError, SlurmError
from llmexp.launch.code import snapshot
from llmexp.launch.cores import cores_of
from llmexp.launch.runtime import contributing_modules
from llmexp.record.checkout import SUBMITTED, keep_checkouts
from llmexp.record.digits import GIB
from llmexp.record.folder import RunFolder
from llmexp.record.installed import installs
from llmexp.record.plan import RunPlan
from llmexp.record.writing import now
from llmexp.slurm.jobs import Intent, Submitted, intend, note, slurm_folder, submission_folder, withdraw
from llmexp.slurm.options import SlurmOptions
from llmexp.slurm.queue import cores_a_gpu, max_array_size

Planned = tuple[RunPlan, RunFolder]
# Minutes that a run takes besides measure.timeout_s: to start, to draw figures and to be recorded.
STARTING_AND_ENDING_MIN = 5
# A rank's libraries, its CUDA context and what it pins, beside the training state that the plan knows.
PROCESS_BYTES = 12 * GIB
# Seconds between SLURM's warning and the time limit: enough to end the ranks and record the run.
WARNING_S = 60
# sbatch's messages where it does not know whether the controller took the jobs.
UNSURE = re.compile(r"timed out|(receive|send|shutdown) failure|Zero Bytes", re.IGNORECASE)


def check_submitit() -> None:
    """Raise ConfigError where submitit is not installed."""
    if find_spec("submitit") is None:
        raise ConfigError(f"hydra/launcher=slurm needs submitit: {installs('slurm')}")


def submit(
    planned: Sequence[Planned], options: SlurmOptions, module: str, after: Mapping[str, str] | None = None
) -> list[Submitted]:
    """Queue all runs; each job is `python -m module SWEEP NAME`, where NAME is its submission's name.

    `after` has the number of the job, by the id of a run, that has to end before the run's own job begins. However it
    ends: the run itself then says why it cannot start, where a job that is never released would say nothing.

    Raises ConfigError with sbatch's message where it refuses.
    """
    submitted: list[Submitted] = []
    for asked, runs in _arrays(planned, options, after or {}):
        for plan, folder in runs:
            folder.write(folder.plan_path, plan)
        intents = _intents([folder for _, folder in runs])
        intend(intents)
        number = _submit_array(intents, asked, module)
        array = [one.taken(number) for one in intents]
        note(array)
        submitted += array
    return submitted


def asked_of(plan: RunPlan, options: SlurmOptions, shares: Sequence[int] = ()) -> dict[str, Any]:
    """Return what one run requests from SLURM, in submitit's terms.

    `shares` are the cores that the cluster's nodes have for each GPU, as far as they are known.
    """
    on_gpus, devices = plan.config.hardware.device == "cuda", plan.devices_per_node
    gpus = options.gpus_per_node if options.gpus_per_node is not None else devices * on_gpus
    asked = {
        "partition": options.partition,
        "nodes": plan.config.hardware.nodes,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "exclusive": options.exclusive or None,
        "gpus_per_node": f"{gpus}:{devices}" if isinstance(gpus, str) and ":" not in gpus else gpus or None,
        "cpus_per_task": options.cpus_per_task or (devices if on_gpus else plan.ranks_per_node) * _cores(plan, shares),
        "mem": _memory(plan) if options.mem is None else options.mem,
        "array_parallelism": options.array_parallelism,
    }
    extra: dict[str, Any] = {
        "time": options.time or math.ceil(plan.config.measure.timeout_s / 60) + STARTING_AND_ENDING_MIN
    }
    extra |= {"requeue" if options.requeue else "no-requeue": True} | options.options
    return {name: value for name, value in asked.items() if value is not None} | {"additional_parameters": extra}


def _cores(plan: RunPlan, shares: Sequence[int]) -> int:
    """Return how many cores one rank asks for; for a GPU its share of a node that has enough, else of the best."""
    wanted = cores_of(plan)
    if plan.config.hardware.device == "cpu" or not shares:
        return wanted
    return min((share for share in shares if share >= wanted), default=max(shares))


def _memory(plan: RunPlan) -> str | None:
    """Return the memory that a node's ranks need for state on the host; None, the cluster's default, without any."""
    if plan.config.hardware.device == "cpu" or plan.memory is None or not plan.memory.host:
        return None
    return f"{math.ceil(plan.ranks_per_node * (plan.memory.host + PROCESS_BYTES) / GIB)}G"


def _arrays(
    planned: Sequence[Planned], options: SlurmOptions, after: Mapping[str, str]
) -> Iterator[tuple[dict[str, Any], list[Planned]]]:
    """Group runs with the same request, at most as many as one array may have."""
    groups: dict[str, tuple[dict[str, Any], list[Planned]]] = {}
    setup = [*options.setup, *_code(planned)]
    on_gpus = any(plan.config.hardware.device == "cuda" for plan, _ in planned)
    shares = cores_a_gpu(options.partition) if on_gpus else []
    for plan, folder in planned:
        asked = _released_after(asked_of(plan, options, shares), after.get(plan.id)) | {"setup": setup}
        groups.setdefault(repr(asked), (asked, []))[1].append((plan, folder))
    longest = max_array_size() or len(planned)
    for asked, runs in groups.values():
        size = {"array_parallelism": len(runs)} | asked
        yield from ((size, runs[start : start + longest]) for start in range(0, len(runs), longest))


def _released_after(asked: dict[str, Any], job: str | None) -> dict[str, Any]:
    """Return the request of a run that waits for the end of another job, besides what the user lets it wait for."""
    if job is None:
        return asked
    extra = asked["additional_parameters"]
    waits = ",".join(filter(None, [extra.get("dependency"), f"afterany:{job}"]))
    return asked | {"additional_parameters": extra | {"dependency": waits}}


def _code(planned: Sequence[Planned]) -> list[str]:
    """Return shell lines that make jobs run the present code, whatever is edited in the working directory later."""
    folder = slurm_folder(planned[0][1].path.parent).absolute()
    others = sorted(set[str]().union(*(contributing_modules(plan) for plan, _ in planned)))
    code, checkouts = snapshot(folder / "code", tuple(others)), folder / "checkouts" / now().replace(":", "")
    keep_checkouts(checkouts)
    exported = {"PYTHONPATH": f"{quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}}", "PYTHONSAFEPATH": "1"}
    return [f"export {name}={value}" for name, value in {**exported, SUBMITTED: quote(str(checkouts))}.items()]


def _intents(folders: Sequence[RunFolder]) -> list[Intent]:
    name = f"llmexp-{folders[0].path.parent.name}-{secrets.token_hex(4)}"
    replaced = [result.ended_at if (result := folder.result()) else "" for folder in folders]
    tasks = range(len(folders)) if len(folders) > 1 else (None,)
    return [
        Intent(folder, name, task, ended_at) for folder, task, ended_at in zip(folders, tasks, replaced, strict=True)
    ]


def _submit_array(intents: Sequence[Intent], asked: dict[str, Any], module: str) -> str:
    """Submit the jobs of one submission to SLURM.

    Everything that they need is written before, so that they do not depend on this process.
    """
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError

    sweep, name = intents[0].folder.path.parent.absolute(), intents[0].name
    executor = SlurmExecutor(folder=submission_folder(sweep, name), max_num_timeout=0)
    executor.folder.mkdir(parents=True)
    executor.update_parameters(
        job_name=name, ntasks_per_node=1, signal_delay_s=WARNING_S, stderr_to_stdout=True, **asked
    )
    if len(intents) > 1:
        executor.parameters["map_count"] = len(intents)
    try:
        with redirect_stderr(StringIO()):  # submitit also prints the error that it raises
            return executor._submit_command(join([sys.executable, "-u", "-m", module, str(sweep), name])).job_id
    except FailedJobError as error:
        if isinstance(error.__cause__, CalledProcessError) and not UNSURE.search(str(error)):
            withdraw(intents)
        raise _refusal(str(error)) from None


def _refusal(text: str) -> ConfigError | SlurmError:
    """Return sbatch's message as a ConfigError, or as a SlurmError where the controller does not answer."""
    said = "; ".join(
        dict.fromkeys(
            re.findall(r"^sbatch: (?:error: |fatal: )?(?:Batch job submission failed: )?(.+)$", text, re.MULTILINE)
        )
    )
    if "contact slurm controller" in said or UNSURE.search(said):
        return SlurmError(f"sbatch: {said}")
    why = said or next(iter(text.strip().splitlines()[-1:]), "without a word")
    return ConfigError(f"sbatch refuses the jobs: {why}; the keys of hydra.launcher set the request")
