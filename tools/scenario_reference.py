"""Writes docs/reference/scenario.md from the models, so that the reference cannot drift from the code."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from surecast.scenario.distributions import Distribution
from surecast.scenario.load import scenario_schema
from surecast.scenario.spec import delivery, network, overlay, workload
from surecast.scenario.spec import scenario as whole

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "scenario.md"
HEAD = """# The scenario file

Every field of a scenario file. This page is written from the models by `tools/scenario_reference.py`; editors get the
same from `surecast scenario schema`. Fields marked **required** must be given; others have the default shown.

Quantities are written with their units: durations `250ms`, `60s`, `2h`, `14d`, `1h30m`, `never`; rates `1400/s`,
`1/min`, `1/10s`; sizes `64B`, `1kB`, `16MiB`; shares `0.99` or `99%`. Where the table says *or a range*, `[low, high]`
draws one value per component from the seed. A *distribution* is a mean (`5ms`), a rate (`1400/s`), a name without a
mean where something else gives it (`deterministic`), or a mapping as described under [distributions](#distributions).
"""
NETWORKS = [
    network.TransitStubNetwork,
    network.RandomNetwork,
    network.TreeNetwork,
    network.FileNetwork,
    network.GivenNetwork,
]
SECTIONS = [
    ("The whole file", [whole.Scenario]),
    ("network", [*NETWORKS, network.RouterSpec, network.PhysicalLinkSpec]),
    ("overlay", [overlay.OverlaySpec, overlay.BrokerSpec, overlay.MatchingSpec, overlay.LinkSpec, overlay.BuiltLinks,
                 overlay.CandidatesSpec, overlay.TopicTreesSpec]),
    ("availability", [overlay.AvailabilitySpec, overlay.ComponentAvailability]),
    ("workload", [workload.WorkloadSpec, workload.TopicSpec, workload.PublisherSpec, workload.SubscriberSpec,
                  workload.ConnectivitySpec, workload.ClassSpec, workload.AttributeSpec,
                  workload.HistogramSpec, workload.IntervalSpec, workload.ClientSpec, workload.SubscriptionsSpec]),
    ("delivery", [delivery.DeliverySpec, delivery.Routing, delivery.FaultTolerance, delivery.Replication,
    delivery.Dropping,
                  delivery.Coding, delivery.Gossip, delivery.Retransmission]),
    ("targets and experiment", [whole.Targets, whole.Experiment]),
    ("distributions", Distribution.__subclasses__()),
]  # fmt: skip


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == text else f"{PAGE} is stale: run tools/scenario_reference.py")
    PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    parts = [HEAD]
    for title, models in SECTIONS:
        parts.append(f"## {title}\n")
        parts += [_common_fields()] if title == "network" else []
        parts += [_model(model) for model in models]
    return "\n".join(parts)


def _model(model: Any, only: Any = None) -> str:
    schema = _definition(model)
    tag = next(
        (p["const"] for n, p in schema["properties"].items() if n in ("kind", "distribution") and "const" in p), None
    )
    name = f"`{tag}`" if tag else model.__name__.removesuffix("Spec")
    lines = [
        f"### {name}\n",
        " ".join((model.__doc__ or "").split()) + "\n",
        "| field | value | default | meaning |",
        "|---|---|---|---|",
    ]
    inherited = model.__mro__[1].model_fields if model in NETWORKS else {}
    for field, node in schema["properties"].items():
        if field in ("kind", "distribution") or (field not in only if only else field in inherited):
            continue
        meaning = " ".join((node.get("description") or model.model_fields[field].description or "").split())
        lines.append(f"| `{field}` | {_value(model, field, node)} | {_default(model, field)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _common_fields() -> str:
    """The fields that all networks share, taken from one of them."""
    shared = network.TreeNetwork.__mro__[1].model_fields
    lines = _model(network.TreeNetwork, shared).splitlines()
    return "\n".join(
        [
            "### Every kind of network\n",
            "The first field is `kind`. All kinds but `transit-stub` also have `domains`.\n",
            *lines[4:],
            "",
        ]
    )


def _definition(model: Any) -> dict[str, Any]:
    schema = scenario_schema()
    return schema if model is whole.Scenario else schema["$defs"][model.__name__]


def _value(model: Any, field: str, node: dict[str, Any]) -> str:
    owner = next(c for c in model.__mro__ if field in inspect.get_annotations(c))
    text = str(owner.__annotations__[field])
    if "NetworkSpec" in text:
        return "one of the kinds under [network](#network)"
    for name, words in (
        ("DurationRange", "duration, or a range"),
        ("RateRange", "rate, or a range"), ("ShareRange", "share, or a range"), ("Duration", "duration"),
        ("Rate", "rate"), ("Size", "size"), ("Probability", "share"),
        ("DistributionSpec", "distribution"),
    ):  # fmt: skip
        if name in text:
            return (
                ("list of " if text.startswith(("tuple[", "list[")) else "")
                + words
                + (" or `auto`" if "auto" in text else "")
            )
    return _kind(node)


_ESTIMATE = {"$ref": "#/$defs/Estimate"}


def _kind(node: dict[str, Any]) -> str:
    if "$ref" in node:
        return node["$ref"].rsplit("/", 1)[-1].removesuffix("Spec")
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    for key in ("anyOf", "oneOf"):
        if key in node:
            # an estimate may stand for every quantity: the guide says so once
            options = [each for each in node[key] if each.get("type") != "null" and each != _ESTIMATE]
            return " or ".join(dict.fromkeys(_kind(option) for option in options))
    kind = node.get("type", "any")
    if kind == "array":
        return f"list of {_kind(node.get('items', {}))}" if isinstance(node.get("items"), dict) else "list"
    return {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true, false",
        "object": "mapping",
    }.get(str(kind), "value")


def _default(model: Any, field: str) -> str:
    info = model.model_fields[field]
    if info.is_required():
        return "**required**"
    if info.default is PydanticUndefined or info.default is None or isinstance(info.default, (list, dict)):
        return ""
    if hasattr(info.default, "model_dump"):
        data = info.default.model_dump(mode="json", exclude_defaults=True)
        return f"`{data.get('distribution', '')}`" if data.get("distribution") else ""
    dumped = model.model_construct(**{field: info.default}).model_dump(mode="json", include={field}, warnings=False)[
        field
    ]
    return "" if dumped == "" else f"`{str(dumped).lower() if isinstance(dumped, bool) else dumped}`"


if __name__ == "__main__":
    main()
