"""What verifier steps check that need no code: texts in a reply, files and commands in a sandbox."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AliasChoices, Discriminator, Field, Tag, field_validator

from agent_env.bundle.fields import Data, Listed, Names, Number, Pattern, Text

__all__ = [
    "BashCmdSucceeds",
    "Judged",
    "ProbeDirExists",
    "ProbeFileContains",
    "ProbeFileExists",
    "ResponseContains",
    "ResponseCriterion",
    "ResponseRegexPresent",
    "SandboxCriterion",
]


class _Criterion(Data):
    """One row of a verifier: 1 if it holds, 0 if not."""

    criterion: str = ""
    """In words."""
    weight: Number = 1.0
    """For `weighted_average`."""


class ResponseContains(_Criterion):
    type: Literal["response_contains"]
    needles: Annotated[Names, Field(min_length=1)]
    """Texts that must all be in the reply."""


class ResponseRegexPresent(_Criterion):
    type: Literal["response_regex_present"]
    pattern: Pattern
    flags: Annotated[tuple[str, ...] | None, Listed] = None
    """Names of `re` flags; None: DOTALL."""

    @field_validator("flags")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in re.RegexFlag.__members__:
                raise ValueError(f"no regex flag is named {name!r}; use names such as IGNORECASE or MULTILINE")
        return names


ResponseCriterion: TypeAlias = Annotated[ResponseContains | ResponseRegexPresent, Field(discriminator="type")]


class _Paths(_Criterion):
    paths: Annotated[Names, Field(min_length=1)]
    """Absolute, or relative to the step's base_dir."""


class ProbeFileExists(_Paths):
    type: Literal["probe_file_exists"]


class ProbeDirExists(_Paths):
    type: Literal["probe_dir_exists"]


class ProbeFileContains(_Paths):
    type: Literal["probe_file_contains"]
    expected: Pattern = Field(validation_alias=AliasChoices("expected", "value"))
    """Searched for in the first of `paths`."""


class BashCmdSucceeds(_Criterion):
    type: Literal["bash_cmd_succeeds"]
    bash_cmd: Text


class Judged(Data):
    """A criterion of a type that isn't ours, which needs a judge: its task is left out."""

    type: Text


_PROBES = ("probe_file_exists", "probe_dir_exists", "probe_file_contains", "bash_cmd_succeeds")


def _probe(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if kind in _PROBES else "judged"


SandboxCriterion: TypeAlias = Annotated[
    Annotated[ProbeFileExists, Tag("probe_file_exists")]
    | Annotated[ProbeDirExists, Tag("probe_dir_exists")]
    | Annotated[ProbeFileContains, Tag("probe_file_contains")]
    | Annotated[BashCmdSucceeds, Tag("bash_cmd_succeeds")]
    | Annotated[Judged, Tag("judged")],
    Discriminator(_probe),
]
