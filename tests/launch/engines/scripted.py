"""An engine for tests: ranks are whatever script the plan's command names."""

from typing import Any

from llmexp.tasks.engine import Engine


class ScriptedEngine(Engine[Any]):
    name = "scripted"
    tasks = ("pretrain",)
    modules = ("psutil",)
    distributions = ("psutil",)


ENGINE = ScriptedEngine()
