"""Reads and writes the file of a profile."""

from __future__ import annotations

from pathlib import Path

from surecast.documents.reading import read_source, yaml_text
from surecast.documents.source import DocumentKind
from surecast.documents.validation import check_model
from surecast.errors import ScenarioError
from surecast.profile.profile_spec import BrokerProfile

__all__ = ["PROFILE_FILE", "ProfileError", "load_profile", "profile_text"]


class ProfileError(ScenarioError):
    """A profile is wrong; the message has every problem found."""


PROFILE_FILE = DocumentKind(
    "profile",
    "surecast-profile: 1, name: and costs:",
    "make one with: surecast calibrate HOST:PORT --out profile.yaml",
    ProfileError,
)


def load_profile(path: str | Path) -> BrokerProfile:
    """Reads and checks a profile; ProfileError has every problem found, each with its line."""
    return check_model(read_source(Path(path), PROFILE_FILE), BrokerProfile, PROFILE_FILE)


def profile_text(profile: BrokerProfile) -> str:
    """Returns a profile as a file that loads to the same one, but for digits beyond the fourth."""
    data = profile.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml_text({"surecast-profile": 1, **data}, allow_unicode=True, width=110)
