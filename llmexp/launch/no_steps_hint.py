"""The advice for a program from which llmexp has heard of no step."""

from __future__ import annotations

from llmexp.record.plan import RunPlan
from llmexp.record.printed import Output

_BY_HOOK = (
    "call llmexp.hook.step(tokens=..., loss=...) after each, or describe the line that ends one: "
    "engine.options.pattern='…(?P<loss>[0-9.]+)…'"
)


def no_steps_hint(plan: RunPlan, output: Output) -> str:
    """Say what makes a program's steps heard, and what it printed instead.

    Return "" where the ranks run llmexp's own loop, which always reports its steps.
    """
    told = plan.engine_config
    if not told.keys() >= {"line", "callback", "every_step"}:
        return ""
    if told["line"]:
        return f"no line matches {told['line']}; {output}"
    adapter = plan.config.engine.options.get("adapter")
    trainer = f"adapter={adapter} needs a transformers Trainer, and none trained in the processes that llmexp started"
    return f"{trainer if told['callback'] else _BY_HOOK}; {output}"
