"""The base of all models of a file, and the fields that any of them may have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = ["Int", "Name", "Spec"]

Int = Annotated[int, Field(strict=True)]
Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
]


class Spec(BaseModel):
    """A part of a file: unknown fields are errors, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
