"""Messages for wrong values, made from the JSON schema of the configuration, which has each key's type and range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from llmexp.schema.section import LARGEST_INT

Node = dict[str, Any]
Path = Sequence[str | int]
# Pydantic's word for the name of a mapping's entry.
NAME = "[key]"
# Pydantic puts these quotes around the tags of a section's types.
QUOTE = "'"
# The types of JSON Schema, in words and as Python types of what is typed.
WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "null": "null",
}
TYPES: dict[str, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "string": (str,), "boolean": (bool,)}
BOUNDS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "below {}",
}


def wrong_value(model: type[BaseModel], error: ErrorDetails, above: str = "") -> str:
    """Say what pydantic has found: the key, its value, what it must be and, where that is plain, what to write instead.

    `above` is the beginning of all keys.
    """
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if error["type"].startswith("union_tag") and isinstance(error["input"], Mapping):
        return _wrong_tag(error, above)
    kinds = Kinds(model)
    way = list(kinds.way(error["loc"]))
    if error["type"] == "missing" and isinstance(way[-1][0], int):
        way.pop()  # a list that is too short: what is given is the list
    elif error["type"] == "missing":
        path = above + ".".join(map(str, error["loc"]))
        return f"{path} is missing: set {path}=<value>"
    path, value = above + ".".join(str(part) for part, _ in way if part != NAME), error["input"]
    node = way[-1][1] if way else {}
    if error["loc"][-1] == NAME and not isinstance(value, str):
        return f"{path}: {spelled(value)} is no name: names begin with a letter, as in {{name: value}}"
    return f"{path}={spelled(value)}: must be {kinds.words(node)}{kinds.correction(path, node, value)}"


def _wrong_tag(error: ErrorDetails, above: str) -> str:
    """Say what is wrong with the key that tells the types of a section apart."""
    told = error["ctx"]
    key = f"{above}{'.'.join(map(str, error['loc']))}.{told['discriminator'].strip(QUOTE)}"
    if "expected_tags" not in told:
        return f"{key} is missing: set {key}=<value>"
    return f"{key}={told['tag']}: must be one of {told['expected_tags'].replace(QUOTE, '')}"


class Kinds:
    """A reader of one model's JSON schema that says what each key must be."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._schema = model.model_json_schema()

    def way(self, path: Path) -> Iterator[tuple[str | int, Node]]:
        """Yield each part of a path that names a key, with its node; end at the types that pydantic puts behind."""
        node = self._schema
        for part in path:
            inner = next((found for option in self._options(node) if (found := _inner(option, part))), None)
            if inner is None:
                return
            yield part, inner
            node = inner

    def words(self, node: Node) -> str:
        """Say what a value must be, such as 'a whole number of at least 1'."""
        kinds = list(dict.fromkeys(map(self._one, self._options(node))))
        null = kinds[1:] and kinds[-1] == WORDS["null"]
        return f"{' or '.join(kinds[:-1])}, or null" if null else " or ".join(kinds)

    def correction(self, path: str, node: Node, value: Any) -> str:
        """Say what to write instead; return "" where that is not plain.

        It is plain for a list, a text that looks like a number, and a value that fits a list or a section's key.
        """
        options, typed = self._options(node), spelled(value)
        kinds = {"choice" if "enum" in option else option.get("type") for option in options} - {"null"}
        if isinstance(value, list):
            return (
                ""
                if kinds & {"array", "object"}
                else f": to sweep several values, leave out the brackets: {path}={typed.strip('[]')}"
            )
        if kinds == {"array"}:
            return f": write {path}=[{typed}]"
        if kinds == {"string"} and isinstance(value, bool | int | float):
            return f": write '{path}=\"{typed}\"'"
        if path.endswith("_bytes"):
            return ", as in 16e9"
        members = {name: inner for option in options for name, inner in option.get("properties", {}).items()}
        fitting = next(
            (name for name, inner in members.items() if any(_fits(each, value) for each in self._options(inner))), None
        )
        return f": did you mean {path}.{fitting}={typed}?" if fitting else ""

    def _options(self, node: Node) -> list[Node]:
        """Follow references and list what a node may be; a section's types become one node with the keys of all."""
        if "$ref" in node:
            return self._options(self._schema["$defs"][node["$ref"].rpartition("/")[2]])
        if "oneOf" in node:
            sections = [option for each in node["oneOf"] for option in self._options(each)]
            return [
                {"properties": {name: inner for section in sections for name, inner in section["properties"].items()}}
            ]
        return [option for each in node["anyOf"] for option in self._options(each)] if "anyOf" in node else [node]

    def _one(self, node: Node) -> str:
        if "kind" in node:
            return str(node["kind"])
        if "const" in node:
            return str(node["const"])
        if "enum" in node:
            return f"one of {', '.join(map(str, node['enum']))}"
        if "prefixItems" in node:
            return f"a list of {len(node['prefixItems'])}, each {self.words(node['prefixItems'][0])}"
        if "items" in node:
            return f"a list, as in [a,b], each {self.words(node['items'])}"
        if "properties" in node:
            return f"a section with {', '.join(node['properties'])}"
        if node.get("type") == "object":
            return "a mapping, as in {name: value}"
        bounds = [
            words.format(node[bound]) for bound, words in BOUNDS.items() if node.get(bound, LARGEST_INT) != LARGEST_INT
        ]
        return " ".join(filter(None, [WORDS.get(node.get("type", ""), "another value"), " and ".join(bounds)]))


def _inner(node: Node, part: str | int) -> Node | None:
    """Return the node below a node by key or list index; for NAME, return what the names of a mapping must be."""
    if isinstance(part, int):
        places = node.get("prefixItems", [])
        return places[part] if part < len(places) else node.get("items")
    if part == NAME:
        return node.get(NAME)
    found = node.get("properties", {}).get(part, node.get("additionalProperties"))
    return {**found, NAME: node.get("propertyNames")} if isinstance(found, dict) else None


def _fits(node: Node, value: Any) -> bool:
    return value in node["enum"] if "enum" in node else type(value) in TYPES.get(node.get("type", ""), ())


def spelled(value: Any) -> str:
    """Return a value as a person types it on the command line."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(spelled, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{spelled(each)}' for name, each in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
