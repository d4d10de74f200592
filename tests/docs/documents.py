"""The README and docs/ as a reader takes them: commands to copy, files to make, words in backticks, links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]

PROGRAMS = ("llmexp", "make", "pip", "python")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PLACEHOLDER = re.compile(r"(?<!\?P)<[^<>]*>")
NEXT_COMMAND = {"|", "&&", "||", ";", ">", "&"}


@dataclass(frozen=True)
class Command:
    """What a reader would type, and the output that the page shows below it."""

    words: tuple[str, ...]
    output: str = ""

    def __str__(self) -> str:
        return shlex.join(self.words)

    def after(self, *program: str) -> tuple[str, ...] | None:
        """The words after those of a program, wherever it stands, as behind `timeout 590` or `srun`.

        None where it is not called.
        """
        for place in range(len(self.words)):
            if self.words[place : place + len(program)] == program:
                return self.words[place + len(program) :]
        return None


def name(page: Path) -> str:
    """As a reader knows it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[str]:
    """Its blocks of code: lines that are indented by four spaces or more, in the documents' one form."""
    found: list[list[str]] = [[]]
    for line in page.read_text().splitlines():
        if line.startswith("    "):
            found[-1].append(line)
        elif found[-1] and line.strip():
            found.append([])
        elif found[-1]:
            found[-1].append("")
    return [dedent("\n".join(block)).strip("\n") for block in found if block]


def prose(page: Path) -> str:
    """Its text without blocks of code."""
    return "\n".join(line for line in page.read_text().splitlines() if not line.startswith("    "))


def spans(page: Path) -> list[str]:
    """What stands in backticks."""
    return [" ".join(span.replace(r"\|", "|").split()) for span in SPAN.findall(prose(page))]


def commands(page: Path) -> list[Command]:
    """Everything there that a reader could type, each once."""
    found = [command for block in blocks(page) for command in _of_block(block)]
    found += [Command(_split(span)) for span in spans(page) if _begins_a_command(span)]
    return list(dict.fromkeys(found))


def files(page: Path) -> dict[str, str]:
    """The files of a user's own that it shows, whole, by their places, which a comment at their beginning names."""
    named = ((re.match(r"(?:# @.*\n)?# (my/\S+\.yaml)\n", block), block) for block in blocks(page))
    return {place[1]: block for place, block in named if place}


def quotations(page: Path) -> list[tuple[Path, str]]:
    """The blocks that it says to be of a source file: `from ...:` stands before them."""
    text = page.read_text()
    found = re.finditer(r"from `([\w/]+\.py)`:\n\n((?: {4}.*\n|\n)+)", text)
    return [(ROOT / quoted[1], quoted[2]) for quoted in found]


def links(page: Path) -> list[str]:
    """Where its links lead, those to other sites left out."""
    return [link for link in LINK.findall(prose(page)) if not re.match(r"\w+:", link)]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of its headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _of_block(block: str) -> Iterator[Command]:
    """With `$ ` before commands all else is output; without any, all that begins as a command does is one."""
    joined = block.replace("\\\n", "")
    if not re.search(r"^\$ ", joined, re.MULTILINE):
        yield from (Command(_split(line)) for line in joined.splitlines() if _begins_a_command(line))
        return
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(_split(line), dedent(output).strip())


def _begins_a_command(line: str) -> bool:
    first, _, rest = line.strip().partition(" ")
    return bool(rest) and (first in PROGRAMS or first in ("srun", "timeout"))


def _split(line: str) -> tuple[str, ...]:
    """The words of the first command of a line, without ellipses.

    What stands in angle brackets is a user's own folder.
    """
    words = shlex.split(PLACEHOLDER.sub("./mine", line), comments=True)
    end = next((place for place, word in enumerate(words) if word in NEXT_COMMAND), len(words))
    return tuple(word for word in words[:end] if word != "…")
