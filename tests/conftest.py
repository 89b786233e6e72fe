"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time: a test that fails sometimes tells nobody anything.
settings.register_profile("surecast", derandomize=True, deadline=None)
settings.load_profile("surecast")

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real topologies and traces: `SURECAST_DATA`, or `shared/data` beside the checkout."""
    folder = Path(os.environ.get("SURECAST_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set SURECAST_DATA to a folder that holds topologies/ and latency/")
    return folder
