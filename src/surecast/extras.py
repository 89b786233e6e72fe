"""The extras of an installation: the base runs brokers, groups and clients; what needs more says what to install."""

from __future__ import annotations

__all__ = ["EXTRA_OF", "missing_extra"]

EXTRA_OF = {
    "matplotlib": "pictures",
    "networkx": "models",
    "numba": "models",
    "numpy": "models",
    "pandas": "spark",
    "plotly": "pictures",
    "pyarrow": "models",
    "pyspark": "spark",
    "scipy": "models",
}
"""The extra of pyproject.toml that brings a package."""


def missing_extra(package: str | None) -> str | None:
    """Returns what to install where a package is missing, or None where no extra brings it.

    >>> missing_extra("numpy.linalg")
    "this needs numpy, which is not installed; run: pip install 'surecast[models]'"
    """
    name = (package or "").partition(".")[0]
    if name not in EXTRA_OF:
        return None
    return f"this needs {name}, which is not installed; run: pip install 'surecast[{EXTRA_OF[name]}]'"
