"""The plan of a run of task=compress."""

from __future__ import annotations

from llmexp.compress.config import CompressRunConfig
from llmexp.record.plan import RunPlan


class CompressPlan(RunPlan):
    """The plan of task=compress; its samples are held-out documents."""

    sample_name = "document"

    config: CompressRunConfig

    @property
    def name_fields(self) -> dict[str, str]:
        """The model and how it is compressed."""
        return {"model": self.config.model.name, "compress": self.config.compress.name}

    @property
    def samples(self) -> int:
        """The number of held-out documents."""
        return self.config.text.held_out_documents

    @property
    def measured_samples(self) -> int:
        """The number of held-out documents."""
        return self.samples

    @property
    def limit_s(self) -> float:
        """Nothing but measure.timeout_s limits it."""
        return 0.0
