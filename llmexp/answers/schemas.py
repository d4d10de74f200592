"""The JSON Schemas of the answers, made from their types."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from llmexp.answers.advised import OptionsAdvised
from llmexp.answers.claims import ClaimsDecided
from llmexp.answers.compared import Compared
from llmexp.answers.planned import PlannedRun
from llmexp.answers.reported import RunsReported
from llmexp.answers.searched import TrialSearched
from llmexp.answers.tables import TablesFilled
from llmexp.errors import unknown

ANSWERS: dict[str, TypeAdapter[Any]] = {
    "plan": TypeAdapter(PlannedRun),
    "report": TypeAdapter(RunsReported),
    "compare": TypeAdapter(Compared),
    "search": TypeAdapter(TrialSearched),
    "findings": TypeAdapter(ClaimsDecided),
    "tables": TypeAdapter(TablesFilled),
    "advice": TypeAdapter(OptionsAdvised),
}


class _Open(GenerateJsonSchema):
    """A generator whose objects may have further keys: those of a task, and those that a later llmexp adds."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        self.resolve_ref_schema(found).pop("additionalProperties", None)
        return found


def json_schema(name: str) -> str:
    """Return the JSON Schema of what the command of this name prints; raises ConfigError for another name."""
    if name not in ANSWERS:
        raise unknown("schema", name, ANSWERS)
    schema = ANSWERS[name].json_schema(mode="serialization", schema_generator=_Open)
    return json.dumps({"$schema": _Open.schema_dialect} | schema, indent=2)
