"""The plan of a run of task=compress."""

from __future__ import annotations

from llmexp.compress.config import CompressRunConfig
from llmexp.record.plan import RunPlan
from llmexp.schema.model import HfModel


class CompressPlan(RunPlan):
    """The plan of task=compress; its samples are held-out documents."""

    sample_name = "document"

    config: CompressRunConfig

    @property
    def name_fields(self) -> dict[str, str]:
        """The model and how it is compressed."""
        return {"model": self.config.model.name, "compress": self.config.compress.name}

    @property
    def comparison_key(self) -> dict[str, str]:
        """The properties that runs share whose figures can be compared: the model and the documents too."""
        text = self.config.text
        documents = f"{text.held_out_documents} of {text.document_tokens} tokens"
        return super().comparison_key | {"model": self.config.model.name, "documents": documents}

    @property
    def model_to_fetch(self) -> HfModel | None:
        """The model, whose weights may have to be fetched before the run."""
        return self.config.model

    @property
    def tokenizer(self) -> str:
        """The tokenizer of the documents."""
        return self.config.text.tokenizer

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
