"""The file of a group: who its replicas are, where they are, and what all of them are told.

All replicas read the same file. A program that stands on the replica shell takes further fields of its own by deriving
from `GroupSpec` and `ReplicaSpec`, and reads with `load_group(path, ItsSpec)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar, overload

from pydantic import AfterValidator, Field, PrivateAttr
from pydantic_core import PydanticCustomError

from surecast.broker.config_models import Count, FilePath, ListenerSpec
from surecast.broker.private import SECRET_BYTES_MIN, read_secret
from surecast.broker.replica.addresses import Address, Place, parse_address
from surecast.documents.reading import read_source
from surecast.documents.source import DocumentKind, FieldPath
from surecast.documents.units import Duration, PositiveDuration, Size
from surecast.documents.validation import Name, Spec, check_model
from surecast.errors import ConfigurationError, ScenarioError
from surecast.group_times import BATCHING_S, LAZY_DELAY_S
from surecast.protocol.paxos import PaxosSettings, Variant

__all__ = ["AddressText", "GroupFileError", "GroupSpec", "PaxosSpec", "ReplicaSpec", "load_group"]

_DEFAULTS = PaxosSettings()


class GroupFileError(ScenarioError, ConfigurationError):
    """A group file is wrong in one or more places; `problems` lists them all."""


def _address(text: str) -> str:
    try:
        return str(parse_address(text))
    except ConfigurationError as error:
        raise PydanticCustomError("address", "{message}", {"message": str(error)}) from None


AddressText = Annotated[str, AfterValidator(_address)]


class ReplicaSpec(Spec):
    """One replica."""

    id: Annotated[int, Field(strict=True, ge=1, le=65_535)]
    """Its number. A number is never used again: a replica that takes the place of another has a higher one."""
    peer: AddressText
    """Where the other replicas reach it, such as `10.0.0.1:7001`; it listens there."""
    client: AddressText | None = None
    """Where it takes requests of clients; none if it is left out."""
    joins: bool = False
    """Whether it was not there when the group began: it takes part once it replaces another."""
    data: FilePath | None = None
    """Folder of its durable state; the group's folder and its number if it is left out."""
    mqtt: tuple[ListenerSpec, ...] = ()
    """Where it takes MQTT clients, for a group that is a broker."""
    clock_offset: FilePath | None = None
    """File with the seconds by which this replica's clock is ahead, read every second, for experiments with wrong \
clocks; its clock is that of the machine if it is left out."""


class PaxosSpec(Spec):
    """The protocol and its limits."""

    variant: Variant = _DEFAULTS.variant
    """*multi*, *batch* or *fast*."""
    allow_direct: bool = _DEFAULTS.allow_direct
    """Whether, in the fast variant, every replica proposes itself."""
    alpha: Count = _DEFAULTS.alpha
    """Instances that may be in flight."""
    heartbeat: PositiveDuration = _DEFAULTS.heartbeat_s
    """Time between two heartbeats."""
    suspect: PositiveDuration = _DEFAULTS.suspect_s
    """Silence after which a replica is taken for down; it decides how long the group pauses when its leader dies."""
    resend: PositiveDuration = _DEFAULTS.resend_s
    """Time after which an unanswered message is sent again."""
    retry: PositiveDuration = _DEFAULTS.retry_s
    """Time after which a request that was not applied goes to the leader again."""
    value_size: Size = _DEFAULTS.value_bytes_max
    """About how large one instance grows."""
    queue_size: Size = _DEFAULTS.queue_bytes_max
    """Requests held, here and at the leader."""
    snapshot_every: Count = _DEFAULTS.snapshot_every
    """Instances between two snapshots."""
    snapshot_at_once: Size = _DEFAULTS.snapshot_at_once_bytes
    """A larger state is written by a process of its own, while the replica goes on."""
    log_keep: Count = _DEFAULTS.log_keep
    """Instances kept below a snapshot for slow replicas."""
    reply_window: Count = _DEFAULTS.reply_window
    """Requests that one client may have in flight."""
    clients_max: Count = _DEFAULTS.clients_max
    """Clients whose replies are kept."""
    client_expiry: PositiveDuration = _DEFAULTS.client_expiry_s
    """A client silent for so long is forgotten."""

    @property
    def settings(self) -> PaxosSettings:
        """Returns the settings of a replica."""
        return PaxosSettings(
            variant=self.variant,
            allow_direct=self.allow_direct,
            alpha=self.alpha,
            heartbeat_s=self.heartbeat,
            suspect_s=self.suspect,
            resend_s=self.resend,
            retry_s=self.retry,
            value_bytes_max=int(self.value_size),
            queue_bytes_max=int(self.queue_size),
            proposal_interval_s=BATCHING_S,
            commit_notification_s=BATCHING_S,
            lazy_delay_s=LAZY_DELAY_S,
            vote_window=max(_DEFAULTS.vote_window, 2 * self.alpha),
            snapshot_every=self.snapshot_every,
            snapshot_at_once_bytes=int(self.snapshot_at_once),
            log_keep=self.log_keep,
            reply_window=self.reply_window,
            clients_max=self.clients_max,
            client_expiry_s=self.client_expiry,
        )


class GroupSpec(Spec):
    """A group of replicas."""

    name: Name
    """The name of the group; replicas of other groups are not let in."""
    founding: Annotated[str, Field(min_length=16)] | None = None
    """A number drawn when the group is founded, by `surecast cluster found` or `up`; replicas of another founding are \
not let in."""
    secret: Annotated[str, Field(min_length=1)] | None = None
    """What the replicas prove to each other that they have; at least 16 characters. Better in a file of its own."""
    secret_file: FilePath | None = None
    """File with the secret, readable by its owner only; white space at the ends does not count."""
    client_secret_file: FilePath | None = None
    """File with what clients must prove that they have; anybody who reaches the port may ask if it is left out."""
    data: FilePath = Path("data")
    """Folder of the durable state; each replica has a folder of its number in it."""
    sync: Literal["majority", "none"] = "majority"
    """*majority*: what is answered is on the disks of a majority, and survives a loss of power everywhere. *none*: it \
is with the operating systems of a majority; it survives the end of processes, and of fewer machines than a majority."""
    peer_queue: Size = 8 << 20
    """What may wait for one slow replica; what is more is dropped, and said again by the protocol."""
    request_size: Size = 16 << 20
    """The largest batch of requests taken from a client at once."""
    link_delay: Duration = 0.0
    """Delay of whatever replicas say to each other, for experiments with distant ones."""
    clock_alarm: PositiveDuration = 1.0
    """Difference between the clocks of two replicas above which both warn."""
    replicas: Annotated[tuple[ReplicaSpec, ...], Field(min_length=1)]
    """All replicas, those that join later among them."""
    paxos: PaxosSpec = PaxosSpec()
    """The protocol and its limits; all replicas must be told the same."""

    _path: Path | None = PrivateAttr(default=None)

    def remedy(self, number: int) -> str:
        """Returns what to do where the state of a replica is damaged."""
        command = f"python -m surecast.broker.replica --group {self._path or 'GROUP'} --replace {number} --by NEW"
        return f"add a new replica to the group's file, with joins: true, start it, and run: {command}"

    def founding_command(self, number: int) -> str:
        """Returns what makes the store of a founder."""
        return f"python -m surecast.broker.replica --group {self._path or 'GROUP'} --found --id {number}"

    @property
    def plan_name(self) -> str:
        """Returns the name of the plan that all replicas must go by; empty for a group that is in no overlay."""
        return ""

    def replica(self, number: int) -> ReplicaSpec:
        """A replica by its number; ConfigurationError where the file has none."""
        for one in self.replicas:
            if one.id == number:
                return one
        known = ", ".join(str(one.id) for one in self.replicas)
        raise ConfigurationError(f"replica {number}: the group {self.name} has only {known}; add it to replicas:")

    @property
    def durability(self) -> Literal["full", "os"]:
        """Returns what a commit of a replica's store survives."""
        return "full" if self.sync == "majority" else "os"

    def places(self, number: int) -> dict[int, Place]:
        """Returns where the founders are; for one that joins, where all are: the founders may have been replaced."""
        return {
            one.id: Place(parse_address(one.peer), self.client_address(one))
            for one in self.replicas
            if not one.joins or self.replica(number).joins
        }

    @staticmethod
    def client_address(replica: ReplicaSpec) -> Address | None:
        """Where a replica takes requests of clients."""
        return None if replica.client is None else parse_address(replica.client)

    def folder(self, number: int) -> Path:
        """Where a replica keeps its durable state."""
        return self.replica(number).data or self.data / str(number)

    def read_secret(self) -> bytes:
        """The secret of the group; ConfigurationError where it is missing or short."""
        if (self.secret is None) == (self.secret_file is None):
            raise ConfigurationError("write either secret or secret_file")
        secret = (self.secret or "").encode() if self.secret_file is None else read_secret(self.secret_file)
        if len(secret) < SECRET_BYTES_MIN:
            raise ConfigurationError(f"the secret has {len(secret)} bytes; it must have {SECRET_BYTES_MIN} or more")
        return secret

    def read_client_secret(self) -> bytes:
        """Returns the secret that clients must have; empty where everybody may ask."""
        return b"" if self.client_secret_file is None else read_secret(self.client_secret_file)


GROUP_FILE = DocumentKind(
    "group file", "name:, secret_file: and replicas:", "make one with: surecast cluster up", GroupFileError
)
G = TypeVar("G", bound=GroupSpec)


@overload
def load_group(path: Path) -> GroupSpec: ...
@overload
def load_group(path: Path, spec: type[G]) -> G: ...
def load_group(path: Path, spec: type[GroupSpec] = GroupSpec) -> GroupSpec:
    """Reads and checks a group file. GroupFileError has every problem found, each with its line.

    >>> import tempfile
    >>> text = "name: plant\\nsecret: sixteen or more characters\\nreplicas: [{id: 1, peer: '127.0.0.1:7001'}]\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "group.yaml"
    ...     _ = file.write_text(text)
    ...     load_group(file).replica(1).peer
    '127.0.0.1:7001'
    """
    source = read_source(path, GROUP_FILE)
    if isinstance(source.data, dict):
        source.data.setdefault("data", "data")  # beside the file, like every other path in it
    group = check_model(source, spec, GROUP_FILE)
    problems = [source.problem(place, message, hint) for place, message, hint in _findings(group)]
    if problems:
        raise GroupFileError(problems)
    group._path = path
    return group


def _findings(group: GroupSpec) -> list[tuple[FieldPath, str, str]]:
    """Returns what is wrong though each field by itself is right."""
    found: list[tuple[FieldPath, str, str]] = []
    for name, read in (("secret_file", group.read_secret), ("client_secret_file", group.read_client_secret)):
        try:
            read()
        except ConfigurationError as error:
            place = "secret" if name == "secret_file" and group.secret is not None else name
            found.append(((place,), str(error), ""))
    try:
        _ = group.paxos.settings
    except ConfigurationError as error:
        found.append((("paxos",), str(error), ""))
    numbers: dict[int, int] = {}
    taken: dict[str, str] = {}
    for at, one in enumerate(group.replicas):
        if one.id in numbers:
            found.append((("replicas", at, "id"), f"{one.id} is that of replicas[{numbers[one.id]}] too", "change one"))
        numbers.setdefault(one.id, at)
        for name in ("peer", "client"):
            address = getattr(one, name)
            if address in taken and not address.endswith(":0"):
                found.append((("replicas", at, name), f"{address} is {taken[address]} too", "change one"))
            if address is not None:
                taken.setdefault(address, f"replicas[{at}].{name}")
    founders = [one.id for one in group.replicas if not one.joins]
    if not founders and group.founding is None:
        hint = "at least one is there when the group begins; later all of its founders may have been replaced"
        found.append((("replicas",), "all of them join, and the group has no founding", hint))
    for at, one in enumerate(group.replicas):
        if one.joins and founders and one.id <= max(founders):
            hint = f"take one above {max(founders)}"
            found.append((("replicas", at, "id"), f"{one.id}: one that joins has a higher number", hint))
    return found
