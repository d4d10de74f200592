"""An engine for tests, as another package's.

Its rank is a script without torch that behaves as engine.options.behavior says.
"""

import sys

from llmexp.record.plan import Command
from llmexp.training.engine import TrainingEngine


class ScriptedEngine(TrainingEngine):
    name = "scripted"
    modules = ()
    distributions = ()
    keeps_weights = True

    def unsupported(self, config, techniques, dims):
        return None

    def native_config(self, config, techniques, dims):
        return {"behavior": "well"}

    def command(self, config, dims):
        return Command(
            argv=[
                sys.executable,
                "-m",
                "llmexp_scripted.rank",
                "{folder}",
                config.engine.options["behavior"],
                "{node}",
            ]
        )


ENGINE = ScriptedEngine()
