"""Nothing of a scenario is ignored in silence: a field changes the answer, or a warning names it."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass

import pytest
from tests.cli.field_changes import CHANGES, EXEMPT, changed_systems
from tests.seeds import seeds

from surecast import predict
from surecast.errors import SurecastError
from surecast.prediction import predict_dropping, predict_reliability
from surecast.report import QoSReport
from surecast.scenario import System, build, parse_text
from surecast.scenario.coverage import MODELS, PARTS, left_out
from surecast.scenario.network import Network, PhysicalLink, Router
from surecast.scenario.spec.delivery import (
    Coding,
    Dropping,
    FaultTolerance,
    Gossip,
    Replication,
    Retransmission,
    Routing,
)
from surecast.scenario.spec.scenario import Experiment, Targets
from surecast.scenario.system import (
    Broker,
    ClassWorkload,
    Connectivity,
    Failures,
    FilterClass,
    Matching,
    Overlay,
    OverlayLink,
    Publisher,
    Subscriber,
    Topic,
)

KINDS = (
    *(Broker, ClassWorkload, Connectivity, Failures, FilterClass, Matching, Network, Overlay, OverlayLink),
    *(PhysicalLink, Publisher, Router, Subscriber, System, Topic),
    *(Coding, Dropping, Experiment, FaultTolerance, Gossip, Replication, Retransmission, Routing, Targets),
)

CLASSES = """
  classes: [{name: c, count: 5}, {name: slow, service_factor: 2}]
  clients: [{name: x, home: b-1}, {name: y, home: b-2}]
  subscriptions: {active: 20, lifetime: 100s}
  publications: 2/s
"""
TOPICS = """
  topics: [t, u]
  publishers: [{name: p, home: b-1, topics: [t, u], rate: 2/s}, {name: q, home: b-2, topics: [t], rate: 1/s}]
  subscribers:
    - {name: s, home: b-2, topics: [t]SUBSCRIBER}
    - {name: r, home: b-1, topics: [t, u]}
"""


def scenario(seed: int) -> System:
    """A random system of two or three brokers, with any of the parts that a scenario can have."""
    draw = random.Random(seed)

    def maybe(text: str, share: float = 0.5) -> str:
        return text if draw.random() < share else ""

    kind = draw.choice(["topics", "topics", "topics", "classes", "both", "coding"])
    fails = maybe("brokers: {mtbf: 3h, mttr: 10min}, ") + maybe("links: {mtbf: 2h, mttr: 5min}, ")
    fails += maybe("clients: {mtbf: 9h, mttr: 5min}", 0.3)
    link = maybe("latency: 30ms, ") + maybe("capacity: 5000/s, ", 0.6 if kind == "coding" else 0.2)
    link += maybe("loss: 0.05", 0.8 if kind == "coding" else 0.2)
    shape = "chain" if kind in ("classes", "both") else draw.choice(["chain", "ring"])
    subscriber = maybe(", connectivity: {on: 30s, off: 10s}", 0.3) + maybe(", service: 40/s", 0.4)
    subscriber += maybe(", reliability_target: 0.9") + maybe(", response_target: 20s")
    delivery = [f"fault_tolerance: {{scheme: {draw.choice(['periodic-subscription', 'buffering', 'bypass'])}}}"]
    if kind == "coding":
        gossip = draw.choice(["null", "{rounds: 2}"])
        delivery.append(f"coding: {{packets: 8, redundancy: 0.25, paths: tree, gossip: {gossip}}}")
    delivery += [maybe("replication: {replicas: 3}", 0.2)]
    delivery += [maybe("dropping: {policy: finite-buffer, buffer_size: 9}", 0.3)]
    workload = (TOPICS.replace("SUBSCRIBER", subscriber) if kind != "classes" else "") + (
        CLASSES if kind in ("classes", "both") else ""
    )
    return build(
        parse_text(f"""
surecast: 1
name: random
overlay:
  brokers: [{{name: b, count: {draw.choice([2, 3])}{maybe(", capacity: 400/s", 0.6)}}}]
  links: {{build: {shape}, {link}}}
availability: {{{fails}}}
workload:
  {maybe("deadline: 30s", 0.6) if kind != "classes" else ""}
{workload}
delivery: {{{", ".join(part for part in delivery if part)}}}
targets: {{{maybe("utilisation: 0.8", 0.3)}}}
""")
    )


def answer(system: System) -> QoSReport | None:
    """The prediction that a user gets by default; None where it is refused, with a message of its own."""
    try:
        return predict(system)
    except SurecastError:
        return None


def figures(report: QoSReport) -> dict[tuple[str, ...], tuple[float, ...]]:
    return {(f.variant, f.scope, f.name, f.metric, f.detail): (f.value, f.low or 0.0, f.high or 0.0) for f in report}


def same(a: QoSReport, b: QoSReport) -> bool:
    one, other = figures(a), figures(b)
    return one.keys() == other.keys() and all(
        value == pytest.approx(other[key], rel=1e-11, abs=1e-14) for key, value in one.items()
    )


NOTHING_FAILS = {f"FaultTolerance.{name}" for name in FaultTolerance.model_fields}
NOTHING_FAILS |= {"Replication.repair", "Replication.suspect"}
TURNS = 6
"""Each system has a sixth of all fields changed, another one for each next system."""


def cannot_matter(field: str, system: System) -> str:
    """Returns why a field cannot change the answer to one system; empty where it can."""
    overlay = system.overlay
    if field in NOTHING_FAILS and not any(part.failures for part in (*overlay.brokers, *overlay.links)):
        return "nothing fails"
    if field in ("FaultTolerance.scheme", "Routing.scheme", "Routing.algorithm"):
        return "each scheme and each algorithm is a variant of its own"
    if field == "FaultTolerance.refresh" and not any(broker.failures for broker in overlay.brokers):
        return "no broker loses its routing table"
    served = any(broker.notification_service for broker in overlay.brokers)
    scheme = system.delivery.fault_tolerance.scheme
    uses = {
        "refresh": scheme == "periodic-subscription" or served,
        "subscription_timeout": scheme == "periodic-subscription",
        "retransmission": scheme.endswith("buffering"),
        "detection": scheme.startswith("bypass") and not overlay.is_tree,
    }
    if field.startswith("FaultTolerance.") and not uses.get(field.split(".")[1].replace("_interval", "", 1), True):
        return "its scheme has no use for it"
    if field in ("Targets.reliability", "Targets.response_time") and system.subscribers:
        return "each subscriber has its own when the system is built"
    if field == "Routing.advertisements" and len(overlay.brokers) == 2:
        return "every class is published at both brokers"
    if field == "FilterClass.service_factor" and not served:
        return "nothing takes time"
    if field == "Publisher.deadline_s" and system.delivery.coding and not any(k.latency_s for k in overlay.links):
        return "nothing takes time"
    return ""


def check_fields(seed: int, turns: int = 1) -> None:
    """Changes each field, or one in so many, of a random system."""
    system = scenario(seed)
    base = answer(system)
    if base is None:
        return  # the models refuse this system, with a message of their own
    for number, (field, words, changed) in enumerate(changed_systems(system)):
        if number % turns != seed % turns or cannot_matter(field, system):
            continue
        found = answer(changed)
        if found is None or not same(base, found):
            continue
        said = (*base.info.warnings, *found.info.warnings)
        assert any(words in warning for warning in said), f"seed {seed}: {field} is ignored: {said}"


@pytest.mark.parametrize("seed", seeds(12, range(16)))
def test_a_field_changes_the_answer_or_is_named_in_a_warning(seed: int) -> None:
    check_fields(seed, TURNS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_every_field_of_many_systems(seed: int) -> None:
    check_fields(seed)


PARTIAL = {
    "loss": (predict_reliability, "links: {build: chain, loss: 0.1}", ""),
    "a deadline for who comes and goes": (predict_dropping, "", ", connectivity: {on: 30s, off: 10s}"),
    "failures of brokers": (predict_dropping, "", ", connectivity: {on: 30s, off: 10s}"),
    "transmission": (predict_reliability, "", ", service: 40/s"),
}


@pytest.mark.parametrize("what", PARTIAL)
def test_no_figure_is_exact_where_its_model_leaves_something_out(what: str) -> None:
    model, links, subscriber = PARTIAL[what]
    text = f"""
surecast: 1
name: part
overlay: {{brokers: [{{name: b, count: 2}}], {links or "links: {build: chain}"}}}
availability: {{{"brokers: {mtbf: 3h, mttr: 10min}" if what.startswith("failures") else ""}}}
workload:
  {"deadline: 30s" if what.startswith("a deadline") else ""}
{TOPICS.replace("SUBSCRIBER", subscriber)}
"""
    report = model(build(parse_text(text)))
    assert any("not modelled by" in warning for warning in report.info.warnings)
    assert "exact" not in {figure.how for figure in report}


def test_every_field_has_a_change_or_a_reason_why_none_can_matter() -> None:
    known = CHANGES.keys() | EXEMPT.keys()
    for kind in KINDS:
        names = [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind.model_fields)
        missing = [f"{kind.__name__}.{name}" for name in names if f"{kind.__name__}.{name}" not in known]
        assert not missing, missing
    assert not CHANGES.keys() & EXEMPT.keys()


def test_every_model_knows_the_parts_that_it_uses() -> None:
    for model, used in MODELS.items():
        assert used <= PARTS.keys(), model


def test_what_is_left_out_is_named_by_the_fields_of_a_file() -> None:
    system = build(
        parse_text("""
    {surecast: 1, name: both, overlay: {brokers: [{name: b, capacity: 9/s}]}, delivery: {replication: {replicas: 3},
     fault_tolerance: {scheme: buffering}}, workload: {classes: [c], clients: [{name: x, home: b}], publications: 1/s,
     subscriptions: {active: 2, lifetime: 9s}, topics: [t], publishers: [{name: p, home: b, topics: [t], rate: 1/s}],
     subscribers: [{name: s, home: b, topics: [t]}]}}
    """)
    )
    said = " ".join(left_out(system, "the capacity model"))
    for words in ("delivery.replication", "delivery.fault_tolerance", "workload.publishers"):
        assert words in said
    assert "workload.subscribers" in " ".join(left_out(system, "the model of groups"))
