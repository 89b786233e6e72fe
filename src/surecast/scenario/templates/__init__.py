"""Scenario files to start from."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["TEMPLATES", "template_text"]

TEMPLATES = {
    "minimal": "one broker, a few publishers and subscribers",
    "overlay": "ten brokers that fail, linked as a tree, with deadlines and reliability targets",
    "internet": "an Internet-like network with candidate positions, filter classes and content-based routing",
    "mobile": "subscribers that come and go, with a response-time target",
}


def template_text(name: str) -> str:
    """Returns the text of a template, by its name in TEMPLATES."""
    return files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
