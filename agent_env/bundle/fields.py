"""The kinds of field that step models are made of: JSON in, frozen data out, nothing coerced."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

__all__ = ["Data", "Listed", "Names", "Number", "Pattern", "Seconds", "Text"]


class Data(BaseModel):
    """A JSON object. Unknown fields are ignored, types never converted; null stands for an absent field, as the public
    format writes it."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: object) -> object:
        if isinstance(value, dict) and None in value.values():
            return {name: item for name, item in value.items() if item is not None}
        return value


def _listed(value: object) -> object:
    """A JSON array as a tuple; anything else is left to be refused."""
    return tuple(value) if isinstance(value, list) else value


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"it is no regular expression ({error}); mend {pattern!r}") from None
    return pattern


Listed = BeforeValidator(_listed)
"""Annotates a tuple: a JSON array."""
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Text, ...], Listed]
Pattern = Annotated[Text, AfterValidator(_compiles)]
"""A regular expression of `re`."""
Number = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
