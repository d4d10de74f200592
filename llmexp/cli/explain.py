"""Short errors: those of Hydra and OmegaConf, which fill a screen, become one line that says what to type instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException
from yaml import MarkedYAMLError

from llmexp.cli.check import of_other_tasks
from llmexp.cli.places import place_of
from llmexp.errors import ConfigError, nearest, unknown

GRAMMAR = "write key=value, commas alone between several values, and quotes around special characters: 'key=\"a b\"'"
# What stands for a group of training in a task that has not got it.
INSTEAD = {"data": "task=serve reads prompts from serve.texts.path=<file>; task=micro reads none"}
# These packages parse files and values, and raise errors of their own.
PARSERS = ("hydra", "omegaconf", "codecs")


def explain(error: Exception) -> ConfigError:
    """Build the one-line error for an error of Hydra's composition."""
    chain = list(_chain(error))
    if own := next((each for each in chain if isinstance(each, ConfigError)), None):
        return own
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return place_of(group, option) or unknown(group, option, error.options)
    if isinstance(error, OverrideParseException):
        return ConfigError(f"cannot read '{error.override}': {GRAMMAR}")
    if isinstance(error, MissingMandatoryValue):
        return ConfigError(f"{error.full_key} is missing: set {error.full_key}=<value>")
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        return ConfigError(f"{error.problem_mark.name}:{error.problem_mark.line + 1}: not YAML: {error.problem}")
    unset = next((each for each in chain if isinstance(each, ConfigAttributeError | ConfigKeyError)), None)
    if unset and (typed := re.search(r"Could not override '([^']+)'", str(error))):
        return _unknown_key(typed[1], unset)
    if lone := re.search(r"Could not override '([^'.]+)'\. No match in the defaults list", str(error)):
        instead = INSTEAD.get(lone[1], "leave it out, or name another task")
        return ConfigError(f"this task has no {lone[1]}=: {instead}")
    return ConfigError(_text(chain))


def raised_by_parsers(error: ValueError) -> bool:
    """Tell whether a ValueError is about a file or value of the configuration.

    Hydra and OmegaConf raise plain ValueErrors for these too.
    """
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return last is not None and str(last.tb_frame.f_globals["__name__"]).partition(".")[0] in PARSERS


def _unknown_key(key: str, error: OmegaConfBaseException) -> ConfigError:
    """Build the error for an unknown key of Hydra's own, with the keys beside it."""
    beside = (
        [str(name) for name in error.parent_node if name != "_target_"]
        if isinstance(error.parent_node, DictConfig)
        else []
    )
    if key.startswith("hydra.launcher.") and not beside:
        return ConfigError(f"{key} belongs to a launcher such as hydra/launcher=slurm, and the command line names none")
    if elsewhere := of_other_tasks(key):
        return elsewhere
    guess = nearest(str(error.key), beside)
    return ConfigError(
        f"unknown key '{key}': {f'did you mean {guess}? ' if guess else ''}keys there are {', '.join(beside)}"
    )


def _text(chain: list[BaseException]) -> str:
    """Return the errors' texts, each once, with the key that they are about."""
    said = [_one_line(each) for each in chain if isinstance(each, HydraException | OmegaConfBaseException | ValueError)]
    new = [text for before, text in pairwise(["", *said]) if text and text not in before]
    key = next((each.full_key for each in chain if isinstance(each, OmegaConfBaseException) and each.full_key), "")
    return f"{key}: {': '.join(new)}" if key else ": ".join(new)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(error: BaseException) -> str:
    """Join the lines, without the position of the node that OmegaConf adds."""
    lines = [
        line.strip()
        for line in str(error).splitlines()
        if not re.match(r"\s*(full_key|object_type|reference_type)[:=]", line)
    ]
    return " ".join(line for line in lines if line)
