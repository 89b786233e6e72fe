"""The file of an overlay: the plan that all brokers share, where each broker is, and how brokers trust each other.

All brokers read the same file. Its `hash` is a check sum over the plan, which is `epoch`, the names in `brokers`,
`links`, `trees` and `prefixes`; addresses and limits are no part of it. Two brokers whose plans differ do not talk to
each other, so an edit of one copy cannot go unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr
from pydantic_core import PydanticCustomError

from surecast.broker.config import is_loopback
from surecast.broker.config_models import (
    BrokerConfig,
    ClientLimitsSpec,
    Count,
    EventLogSpec,
    FilePath,
    HttpSpec,
    LimitsSpec,
    ListenerSpec,
    LogSpec,
    SecuritySpec,
    StateSpec,
)
from surecast.broker.private import SECRET_BYTES_MIN, read_secret
from surecast.broker.replica.addresses import Address, parse_address
from surecast.broker.replica.group_file import AddressText, PaxosSpec
from surecast.broker.store_base import Durability
from surecast.documents.reading import read_source
from surecast.documents.source import DocumentKind, FieldPath, Source, parse_field
from surecast.documents.units import Duration, PositiveDuration, Size
from surecast.documents.validation import Name, Spec, check_model
from surecast.errors import ConfigurationError, ScenarioError
from surecast.protocol.broker.broker_settings import Overflow
from surecast.protocol.demand import SUMMARIES
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree, scheme_parts

__all__ = [
    "OVERLAY_FILE",
    "LinkSpec",
    "OverlayBrokerSpec",
    "OverlayFile",
    "OverlayFileError",
    "OverlayReplicaSpec",
    "PrefixSpec",
    "TreeSpec",
    "check_overlay",
    "config_of",
    "load_overlay",
]

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@ -]*")
_PLAN_PROBLEM = re.compile(r"plan: ([a-z]+(?:\[\d+\])?(?:\.[a-z]+)?): (.*)", re.DOTALL)


class OverlayFileError(ScenarioError, ConfigurationError):
    """An overlay's file is wrong in one or more places; `problems` lists them all."""


def _broker_name(name: str) -> str:
    if not _FILE_NAME.fullmatch(name):
        text = f"{name!r} names a broker's folder and certificate; use letters, digits and _ . - + @"
        raise PydanticCustomError("broker_name", "{message}", {"message": text})
    return name


def _scheme(name: str) -> str:
    try:
        scheme_parts(name)
    except ConfigurationError as error:
        raise PydanticCustomError("scheme", "{message}", {"message": str(error)}) from None
    return name


def _algorithm(name: str) -> str:
    if name != "flooding" and name not in SUMMARIES:
        text = f"there is no routing algorithm {name!r}; use one of flooding, {', '.join(SUMMARIES)}"
        raise PydanticCustomError("algorithm", "{message}", {"message": text})
    return name


BrokerName = Annotated[Name, AfterValidator(_broker_name)]
SchemeName = Annotated[str, AfterValidator(_scheme)]
AlgorithmName = Annotated[str, AfterValidator(_algorithm)]
Ends = tuple[Name, Name]


class OverlayReplicaSpec(Spec):
    """One replica of a broker that is a group."""

    id: Annotated[int, Field(strict=True, ge=1, le=65_535)]
    """Its number in the group."""
    peer: AddressText
    """The address at which the other replicas reach it; it listens there."""
    link: AddressText
    """The address at which neighbours reach it while it leads the group."""
    mqtt: Annotated[tuple[ListenerSpec, ...], Field(min_length=1)]
    """The address at which it takes MQTT clients."""


class OverlayBrokerSpec(Spec):
    """One broker of the overlay: a process, or a group of replicas."""

    name: BrokerName
    """Its name in the plan; where there are certificates, also the common name in its certificate."""
    link: AddressText | None = None
    """Where its neighbours reach it, such as `10.0.0.1:7001`; it listens there."""
    mqtt: tuple[ListenerSpec, ...] = ()
    """The address at which it takes MQTT clients."""
    replicas: tuple[OverlayReplicaSpec, ...] = ()
    """The replicas of a broker that is a group, in place of `link` and `mqtt`: an odd number, of which all but a \
minority must run."""
    founding: Annotated[str, Field(min_length=16)] | None = None
    """Of a group: a number that `surecast overlay plan` draws; replicas of another founding are not let in."""
    paxos: PaxosSpec | None = None
    """Of a group: its protocol and limits, as the file of a group has them."""
    link_delay: Duration = 0.0
    """Of a group: delay of whatever its replicas say to each other, for experiments with distant ones."""
    http: HttpSpec | None = None
    """Metrics, health and administration over HTTP; there is no such listener if it is left out."""
    data: FilePath | None = None
    """Folder of its durable state; the overlay's folder and its name if it is left out."""


class LinkSpec(Spec):
    """The routing algorithm of one link of a tree, where it differs from that of the tree."""

    link: Ends
    """The two brokers."""
    algorithm: AlgorithmName
    """What of the demand behind the link is announced over it."""


class TreeSpec(Spec):
    """A spanning tree: the events of some topics travel along it."""

    links: tuple[Ends, ...]
    """Its links, each by its two brokers."""
    scheme: SchemeName = "none"
    """The fault-tolerance scheme: `none`, `periodic-subscription`, `buffering`, `bypass` or `bypass-buffering`."""
    algorithm: AlgorithmName = "covering"
    """What of the demand behind a link is announced over it: `flooding`, `simple`, `identity`, `covering`, `merging` \
or the exact forms of identity and merging."""
    algorithms: tuple[LinkSpec, ...] = ()
    """Links with an algorithm of their own."""
    root: Name | None = None
    """The broker towards which demand is announced, for hierarchical routing; peer-to-peer if it is left out."""
    refresh: Literal["link", "end-to-end"] = "link"
    """How a broker that has lost its table has it again: from its neighbours at every link-up, or when home brokers \
send their subscriptions again; then the algorithm makes no difference."""
    advertisements: bool = False
    """Whether demand is announced only towards publishers that have advertised what meets it."""


class PrefixSpec(Spec):
    """The trees of some topics."""

    prefix: Annotated[str, Field(max_length=65_535)]
    """Topics that begin with these levels; the longest prefix of a topic decides. The empty one is for all others."""
    trees: Annotated[tuple[Annotated[int, Field(strict=True, ge=0)], ...], Field(min_length=1)]
    """Places of the trees in `trees`, from 0; of several, a hash of the topic chooses one."""


class OverlayFile(Spec):
    """An overlay of brokers."""

    name: Name
    """The name of the overlay; brokers of other overlays are not let in."""
    epoch: Count = 1
    """The number of this plan; a plan that changes gets a higher one."""
    hash: Name
    """The check sum of the plan, which `surecast overlay plan` writes."""
    secret_file: FilePath | None = None
    """File with what brokers of one machine, and the replicas of a group, prove to each other that they have, \
readable by its owner only; at least 16 characters."""
    certificates: FilePath | None = None
    """Folder with `ca.pem`, and for each broker `NAME.pem` and `NAME.key`: links are then TLS 1.3, and each end shows \
a certificate with its name. All replicas of a group have that of their broker, and `secret_file` for each other."""
    data: FilePath = Path("data")
    """Folder of the durable state; each broker has a folder of its name in it."""
    durability: Durability = "full"
    """What survives when a broker has acknowledged it: `full` a loss of power, `os` the end of the broker, `memory` \
neither; buffering needs one of the first two to keep events over a restart."""
    ping: PositiveDuration = 0.1
    """Time without traffic after which a broker says on a link that it is there."""
    suspect: PositiveDuration = 0.5
    """Silence after which a neighbour is taken for down."""
    ack_wait: Duration = 0.02
    """Time after which events in custody go around a neighbour that has not acknowledged them, where the scheme has \
detours; longer where it usually takes longer. 0 waits until it is suspected."""
    hold_down: PositiveDuration = 0.1
    """Time for which a link stays down at least once it has broken. It doubles each time that the link breaks as soon \
as it is up (within ten times as long, or twice `suspect`),"""
    hold_down_max: PositiveDuration = 30.0
    """up to this."""
    resume: Duration = 30.0
    """Time for which what is on a broken link is kept, to go on where it stopped."""
    refresh: PositiveDuration = 60.0
    """Time between two comparisons of the demand on a link that stays up, and between two times that subscriptions \
are sent where they are refreshed from end to end."""
    timeout: PositiveDuration = 180.0
    """Age at which a subscription that was not refreshed from end to end is forgotten."""
    retransmission: Duration = 0.0
    """Time between two transmissions of an event that a neighbour has not acknowledged; 0 sends it at every link-up."""
    window: Size = float(4 << 20)
    """Bytes that may be on their way over a link for one tree."""
    queue_size: Size = float(16 << 20)
    """Bytes that may wait on a link for one tree; beyond it events at best effort are dropped and counted."""
    custody: Count = 100_000
    """Events of one tree that wait on disk for one neighbour; beyond it publishers have to wait, up to `hold_max`."""
    hold_max: Duration = 30.0
    """Time for which publishers have to wait for a link that is full. Then they are read again; while it stays full,"""
    overflow: Overflow = "drop-new"
    """this rule says what is dropped for the neighbour, as for sessions; with `reject` publishers are told."""
    sessions: Literal["separate", "send-home", "move"] = "separate"
    """The answer to a client that asks for its session at another broker: a session of its own there, a server \
reference to the broker that has it (MQTT 5), or the session itself, which moves."""
    move_wait: PositiveDuration = 5.0
    """Time for which a client waits for its session from a broker that sends nothing; then it begins anew."""
    move_linger: PositiveDuration = 5.0
    """Time for which a broker still takes messages for a session that has moved, and passes them on."""
    gates: bool = False
    """Whether links can be cut, delayed and made lossy at the broker's local socket, for experiments."""
    brokers: Annotated[tuple[OverlayBrokerSpec, ...], Field(min_length=1)]
    """All brokers."""
    links: tuple[Ends, ...] = ()
    """All links, each by its two brokers; the first one dials."""
    trees: Annotated[tuple[TreeSpec, ...], Field(min_length=1)]
    """The spanning trees, at most 16."""
    prefixes: Annotated[tuple[PrefixSpec, ...], Field(min_length=1)] = (PrefixSpec(prefix="", trees=(0,)),)
    """Which topics travel on which tree."""
    security: SecuritySpec = SecuritySpec()
    """Which clients may connect, and what they may do."""
    limits: LimitsSpec = LimitsSpec()
    """The bounds of every queue, table and waiting time for clients, at each broker."""
    clients: tuple[ClientLimitsSpec, ...] = ()
    """Limits that differ for some clients."""
    event_log: EventLogSpec | None = None
    """The log of everything that happens; each broker writes one of its own, in a folder of its name."""
    log: LogSpec = LogSpec()
    """The log lines of a broker."""
    system_interval: Duration = 10.0
    """Time between two publications of the `$SYS` topics, which stay at their broker; 0 switches them off."""
    drain: Duration = 5.0
    """Time that clients have to take what is unsent when a broker stops."""

    _plan: OverlayPlan = PrivateAttr()
    _path: Path | None = PrivateAttr(default=None)

    @property
    def plan(self) -> OverlayPlan:
        """The plan, as a node takes it."""
        return self._plan

    @property
    def path(self) -> Path | None:
        """The file that this was read from."""
        return self._path

    def broker(self, name: str) -> OverlayBrokerSpec:
        """Returns a broker by its name; ConfigurationError where the file has none."""
        for one in self.brokers:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.brokers)
        raise ConfigurationError(f"broker {name!r}: the overlay {self.name} has only {known}")

    def addresses(self, name: str) -> list[Address]:
        """Returns where the neighbours of a broker reach it: one address, or that of each replica of a group."""
        broker = self.broker(name)
        links = [broker.link] if broker.link is not None else [replica.link for replica in broker.replicas]
        return [parse_address(link) for link in links]

    def folder(self, name: str) -> Path:
        """Returns where a broker keeps its durable state."""
        return self.broker(name).data or self.data / name

    def mqtt_address(self, name: str) -> str:
        """Returns where clients find a broker: the address of its first listener; of a group, at its first replica."""
        return self.mqtt_addresses(name)[0]

    def mqtt_addresses(self, name: str) -> list[str]:
        """Returns where clients find a broker, or each replica of a group."""
        broker = self.broker(name)
        return [_address_of(each[0]) for each in (broker.mqtt, *(one.mqtt for one in broker.replicas)) if each]

    def reference(self, name: str) -> str:
        """Returns where clients that are sent to a broker find it: the address of its first listener. Where that
        listens at all addresses, its neighbours' name for the host stands there."""
        listener = self.broker(name).mqtt[0]
        is_open = listener.host in ("*", "0.0.0.0", "::")
        host = self.addresses(name)[0].host if is_open else listener.host
        return f"[{host}]:{listener.wanted_port}" if ":" in host else f"{host}:{listener.wanted_port}"

    def read_link_secret(self) -> bytes:
        """Returns the secret of links; empty where there are certificates instead."""
        return b"" if self.certificates is not None else self.read_secret()

    def read_secret(self) -> bytes:
        """Returns the secret; empty where there is none. ConfigurationError says what is wrong."""
        if self.secret_file is None:
            return b""
        secret = read_secret(self.secret_file)
        if len(secret) < SECRET_BYTES_MIN:
            raise ConfigurationError(f"the secret has {len(secret)} bytes; it must have {SECRET_BYTES_MIN} or more")
        return secret


def _address_of(listener: ListenerSpec) -> str:
    host = "127.0.0.1" if listener.host in ("*", "0.0.0.0") else listener.host
    return f"{host}:{listener.wanted_port}"


OVERLAY_FILE = DocumentKind(
    "overlay file",
    "name:, brokers: and trees:",
    "make one with: surecast overlay plan SCENARIO --out overlay.yaml",
    OverlayFileError,
)


def load_overlay(path: Path) -> OverlayFile:
    """Reads and checks the file of an overlay; OverlayFileError has every problem found, each with its line.

    >>> import tempfile
    >>> text = '''
    ... name: shop
    ... hash: none
    ... brokers: [{name: b1, link: "127.0.0.1:7001", mqtt: [{}]}]
    ... trees: [{links: []}]
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "overlay.yaml"
    ...     _ = file.write_text(text)
    ...     load_overlay(file)
    Traceback (most recent call last):
        ...
    surecast.broker.overlay.overlay_file.OverlayFileError: ...overlay.yaml:2: secret_file: without it ...
    """
    overlay = check_overlay(read_source(path, OVERLAY_FILE))
    overlay._path = path
    return overlay


def check_overlay(source: Source) -> OverlayFile:
    """Returns the overlay that the data of a file describe; OverlayFileError has every problem found."""
    if isinstance(source.data, dict):
        source.data.setdefault("data", "data")  # beside the file, like every other path in it
    overlay = check_model(source, OverlayFile, OVERLAY_FILE)
    problems = [source.problem(place, message, hint) for place, message, hint in _findings(overlay)]
    if problems:
        raise OverlayFileError(problems)
    return overlay


def config_of(overlay: OverlayFile, name: str, data: Path | None = None) -> BrokerConfig:
    """Returns what one broker of an overlay is told as an MQTT broker; `data` is another folder for its state."""
    broker = overlay.broker(name)
    events = overlay.event_log
    if events is not None:
        events = events.model_copy(update={"folder": events.folder / name})
    return BrokerConfig().model_copy(
        update={
            "name": name,
            "listeners": broker.mqtt,
            "state": StateSpec(folder=data or overlay.folder(name), durability=overlay.durability),
            "security": overlay.security,
            "limits": overlay.limits,
            "clients": overlay.clients,
            "event_log": events,
            "http": broker.http,
            "log": overlay.log,
            "system_interval": overlay.system_interval,
            "drain": overlay.drain,
        }
    )


Finding = tuple[FieldPath, str, str]


def _of_sessions(overlay: OverlayFile) -> list[Finding]:
    groups = [broker.name for broker in overlay.brokers if broker.replicas]
    if overlay.sessions == "separate" or not groups:
        return []
    hint = "write sessions: separate, or leave it out"
    return [(("sessions",), f"{groups[0]} is a group of replicas, whose sessions stay with it for now", hint)]


def _findings(overlay: OverlayFile) -> list[Finding]:
    """Returns problems of fields that are right by themselves. The plan is made last, from parts that hold together."""
    findings = [*_of_brokers(overlay), *_of_trust(overlay), *_of_times(overlay), *_of_sessions(overlay)]
    wrong_links = [*_of_links(overlay), *_of_trees(overlay)]
    if findings or wrong_links:
        return [*findings, *wrong_links]
    try:
        overlay._plan = plan = _plan_of(overlay)
    except ConfigurationError as error:
        match = _PLAN_PROBLEM.fullmatch(str(error))
        return [((), str(error), "") if match is None else (parse_field(match[1]), match[2], "")]
    if overlay.hash != plan.hash:
        hint = f"if the plan was changed on purpose, write hash: {plan.hash} and a higher epoch, in all copies"
        return [(("hash",), f"{overlay.hash} is not the check sum of the plan in this file", hint)]
    return []


def _plan_of(overlay: OverlayFile) -> OverlayPlan:
    trees = []
    for tree in overlay.trees:
        algorithms = tuple((one.link, one.algorithm) for one in tree.algorithms)
        trees.append(
            Tree(tree.links, tree.scheme, tree.algorithm, algorithms, tree.root, tree.refresh, tree.advertisements)
        )
    names = tuple(broker.name for broker in overlay.brokers)
    prefixes = tuple((each.prefix, each.trees) for each in overlay.prefixes)
    return OverlayPlan(names, overlay.links, tuple(trees), prefixes, overlay.epoch)


def _of_brokers(overlay: OverlayFile) -> Iterator[Finding]:
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for at, broker in enumerate(overlay.brokers):
        if broker.name in names:
            yield ("brokers", at, "name"), f"{broker.name} is that of {names[broker.name]} too", "change one"
        names.setdefault(broker.name, f"brokers[{at}]")
        if broker.replicas:
            yield from _of_group(overlay, at)
        else:
            yield from _of_process(overlay, at)
        addresses = {}
        if broker.link is not None:
            addresses["link"] = broker.link
        addresses |= {f"mqtt[{i}].port": f"{each.host}:{each.wanted_port}" for i, each in enumerate(broker.mqtt)}
        for place, one in enumerate(broker.replicas):
            here = f"replicas[{place}]"
            addresses |= {f"{here}.peer": one.peer, f"{here}.link": one.link}
            addresses |= {
                f"{here}.mqtt[{i}].port": f"{each.host}:{each.wanted_port}" for i, each in enumerate(one.mqtt)
            }
        for field, address in addresses.items():
            where = f"brokers[{at}].{field}"
            if address.endswith(":0"):
                yield parse_field(where), "port 0 is any port, and others could not know which", "write a port"
            elif address in taken:
                yield parse_field(where), f"{address} is that of {taken[address]} too", "change one"
            taken.setdefault(address, where)


def _of_process(overlay: OverlayFile, at: int) -> Iterator[Finding]:
    """Returns what is wrong with a broker that is one process, or is neither a group nor a process."""
    broker = overlay.brokers[at]
    for field in ("link", "mqtt"):
        if not getattr(broker, field):
            yield ("brokers", at, field), "it is missing", f"write {field}:, or replicas: for a group"
    for field in ("paxos", "link_delay"):
        if getattr(broker, field):
            yield ("brokers", at, field), "only a group has it", f"leave out {field}:, or write replicas:"


def _of_group(overlay: OverlayFile, at: int) -> Iterator[Finding]:
    """Returns what is wrong with a broker that is a group."""
    broker = overlay.brokers[at]
    where: FieldPath = ("brokers", at)
    if broker.paxos is not None:
        try:
            _ = broker.paxos.settings
        except ConfigurationError as error:
            yield (*where, "paxos"), str(error), ""
    for field in ("link", "mqtt", "data", "http"):
        if getattr(broker, field):
            yield (*where, field), "a group has none of its own", f"leave out {field}:, or replicas:"
    numbers = [one.id for one in broker.replicas]
    if len(numbers) % 2 == 0:
        text = f"{len(numbers)} survive no more failures than {len(numbers) - 1}"
        yield (*where, "replicas"), text, "write an odd number of them"
    for place, number in enumerate(numbers):
        if number in numbers[:place]:
            yield (*where, "replicas", place, "id"), f"{number} stands there twice", "change one"
    if broker.founding is None:
        hint = "write some 16 characters that no other group has"
        yield (*where, "founding"), "a group has one, so that replicas of another are not let in", hint
    if overlay.secret_file is None:
        hint = "write secret_file:, besides certificates: for links"
        yield (*where, "replicas"), "replicas trust each other by a secret", hint
    if overlay.durability == "memory":
        hint = "write durability: os, or full"
        yield ("durability",), f"the replicas of {broker.name} must not forget their votes", hint


def _of_trust(overlay: OverlayFile) -> Iterator[Finding]:
    has_groups = any(broker.replicas for broker in overlay.brokers)
    if overlay.certificates is not None and overlay.secret_file is not None and not has_groups:
        yield ("secret_file",), "with certificates, links need no secret", "leave out one of them"
        return
    if overlay.certificates is None and overlay.secret_file is None:
        hint = "write secret_file: for brokers of one machine, or certificates: for several"
        yield ("secret_file",), "without it anybody could join the overlay", hint
    if overlay.secret_file is not None:
        try:
            overlay.read_secret()
        except ConfigurationError as error:
            yield ("secret_file",), str(error), ""
    if overlay.certificates is None:
        for at, broker in enumerate(overlay.brokers):
            links = {"link": broker.link} if broker.link is not None else {}
            links |= {f"replicas[{place}].link": one.link for place, one in enumerate(broker.replicas)}
            for field, link in links.items():
                host = parse_address(link).host
                if not is_loopback(host):
                    hint = "write certificates: in place of secret_file:"
                    text = f"{host} is not on this machine only, and a secret does not encrypt what goes over a link"
                    yield parse_field(f"brokers[{at}].{field}"), text, hint


def _of_times(overlay: OverlayFile) -> Iterator[Finding]:
    if overlay.suspect < 2 * overlay.ping:
        hint = "write at least twice the time of ping"
        yield ("suspect",), f"{overlay.suspect:g} s would suspect a neighbour that pings every {overlay.ping:g} s", hint
    if overlay.timeout <= overlay.refresh:
        yield ("timeout",), "is not longer than refresh", "write three times as long"
    if overlay.hold_down_max < overlay.hold_down:
        yield ("hold_down_max",), "is below hold_down", "write a longer time"


def _of_links(overlay: OverlayFile) -> Iterator[Finding]:
    names = {broker.name for broker in overlay.brokers}
    yield from _of_ends(("links",), overlay.links, names)
    pairs = {frozenset(link) for link in overlay.links}
    for at, tree in enumerate(overlay.trees):
        yield from _of_ends(("trees", at, "links"), tree.links, names)
        for place, link in enumerate(tree.links):
            if frozenset(link) not in pairs and set(link) <= names:
                yield ("trees", at, "links", place), f"{' and '.join(link)} have no link", "add it to links:"
        own = {frozenset(link) for link in tree.links}
        for place, one in enumerate(tree.algorithms):
            if frozenset(one.link) not in own:
                yield ("trees", at, "algorithms", place, "link"), f"{list(one.link)} is no link of this tree", ""


def _of_ends(where: FieldPath, links: tuple[Ends, ...], names: set[str]) -> Iterator[Finding]:
    seen: dict[frozenset[str], int] = {}
    for at, link in enumerate(links):
        for end in link:
            if end not in names:
                yield (*where, at), f"there is no broker {end!r}", f"there are {', '.join(sorted(names))}"
        if link[0] == link[1]:
            yield (*where, at), f"{link[0]} cannot be its own neighbour", "name two brokers"
        first = seen.setdefault(frozenset(link), at)
        if first != at:
            yield (*where, at), f"{list(link)} stands there twice, first at [{first}]", "leave one out"


def _of_trees(overlay: OverlayFile) -> Iterator[Finding]:
    names = {broker.name for broker in overlay.brokers}
    for at, tree in enumerate(overlay.trees):
        if tree.root is not None and tree.root not in names:
            yield ("trees", at, "root"), f"there is no broker {tree.root!r}", f"there are {', '.join(sorted(names))}"
    prefixes: dict[str, int] = {}
    for at, each in enumerate(overlay.prefixes):
        if prefixes.setdefault(each.prefix, at) != at:
            yield ("prefixes", at, "prefix"), f"{each.prefix!r} stands there twice", "leave one out"
        for place, number in enumerate(each.trees):
            if number >= len(overlay.trees):
                text = f"there is no tree {number}; there are {len(overlay.trees)}, from 0"
                yield ("prefixes", at, "trees", place), text, ""
    if "" not in prefixes:
        yield ("prefixes",), "no tree is for all other topics", "add {prefix: '', trees: [0]}"
