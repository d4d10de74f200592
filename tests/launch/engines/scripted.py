"""An engine for tests: ranks are whatever script the plan's command names."""

from typing import ClassVar


class ScriptedEngine:
    name: ClassVar[str] = "scripted"
    modules: ClassVar[tuple[str, ...]] = ("psutil",)
    extras: ClassVar[str] = "train"
    distributions: ClassVar[tuple[str, ...]] = ("psutil",)

    def needed_modules(self, config, techniques):
        return self.modules

    def advice(self, config, reason):
        return ""


ENGINE = ScriptedEngine()
