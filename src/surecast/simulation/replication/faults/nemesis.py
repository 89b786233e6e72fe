"""Faults besides those of single messages: partitions, crashes, stalls, wrong clocks, disks that are lost or set back.

A replica whose disk is gone, or an older copy, is replaced by a blank one.

And what merely happens: somebody begins or ceases to wait at a replica.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, get_args

from surecast.protocol.paxos import Message
from surecast.protocol.paxos.incarnations import Incarnation, Seen, objection_to
from surecast.protocol.paxos.journal import read_records
from surecast.protocol.paxos.paxos_messages import Admit, Refuse, Rejoin
from surecast.simulation.replication.faults.faulty_host import FaultyHost

if TYPE_CHECKING:
    from surecast.simulation.replication.faults.faulty_group import FaultyGroup

__all__ = ["STEADY_S", "Nemesis"]

_REPLACE_RETRY_S = 0.7
_PAIRS_MAX = 3
_COPY_EVERY_S = 0.4
STEADY_S = 2.0
"""The time by which a group has a leader where nothing goes wrong."""
_KINDS: Final[tuple[type, ...]] = get_args(Message)


class Nemesis:
    """Makes trouble until it is told to heal the world; a replacement that began is finished after that."""

    def __init__(self, world: FaultyGroup):
        self.world = world
        self.left = world.options.replacements
        self._kinds = [kind for kind in _KINDS if world.options.checked or kind not in (Rejoin, Admit, Refuse)]
        self.replacing: tuple[int, int, int] | None = None
        rng, options = world.rng, world.options
        world.at(rng.expovariate(1 / options.partition_every_s), self._partition)
        world.at(rng.expovariate(1 / options.urgent_every_s), self._toggle_urgent)
        if options.wrong_clocks_s:
            world.at(world.clock_rng.expovariate(1 / options.clock_every_s), self._set_clock)
        if options.stall_s:
            world.at(STEADY_S + world.stall_rng.expovariate(1 / options.stall_every_s), self._stall)
        if options.crash:
            world.at(rng.expovariate(1.0), self._crash_many)
        if self.left:
            world.at(rng.uniform(0, options.faults_s / 2), self._begin_replacement)
        if options.set_back:
            world.at(rng.expovariate(1 / _COPY_EVERY_S), self._copy)

    @property
    def is_done(self) -> bool:
        """True if no replacement is in flight."""
        return self.replacing is None

    def heal(self) -> None:
        """Everything works from now on, except what was destroyed for good."""
        self.world.blocked.clear()
        for host in self.world.hosts.values():
            host.stalled_until_s = 0.0
            self.world.restart(host)

    def _partition(self) -> None:
        """Cuts the replicas in two, in both directions or in one; sometimes single links."""
        world, rng = self.world, self.world.rng
        if world.is_healed:
            return
        world.blocked.clear()
        world.counts["partitions"] += 1
        ids = list(world.hosts)
        if rng.random() < 0.7:
            if rng.random() < 0.3:
                cut = {(sender, receiver) for sender in ids for receiver in ids if rng.random() < 0.3}
            else:
                side = set(rng.sample(ids, rng.randint(1, len(ids) - 1)))
                cut = {
                    (sender, receiver) for sender in ids for receiver in ids if sender in side and receiver not in side
                }
            if rng.random() >= world.options.one_way:
                cut |= {(receiver, sender) for sender, receiver in cut}
            world.blocked |= {(*link, kind) for link in cut for kind in self._kinds}
        if rng.random() < world.options.selective:
            self._select(ids)
        if world.options.split and rng.random() < world.options.split:
            self._split(ids)
        world.at(rng.expovariate(1 / world.options.partition_every_s), self._partition)

    def _select(self, ids: list[int]) -> None:
        """Some pairs hear only some kinds of messages of each other: selections that chance alone would hardly make."""
        world, rng = self.world, self.world.rng
        pairs = list(combinations(ids, 2))
        for first, second in rng.sample(pairs, rng.randint(1, min(_PAIRS_MAX, len(pairs)))):
            for link in ((first, second), (second, first)):
                world.blocked -= {(*link, kind) for kind in self._kinds}
                world.blocked |= {(*link, kind) for kind in self._kinds if rng.random() < 0.5}

    def _split(self, ids: list[int]) -> None:
        """Cuts off a minority with one that leads, which still shares some kinds of messages with some of the others.

        So it may go on leading while the others have a later leader, and learn in odd ways what that one chose.
        """
        world, rng = self.world, self.world.rng
        leading = [number for number in ids if (replica := world.hosts[number].replica) is not None and replica.leads]
        leader = rng.choice(leading or ids)
        others = rng.sample([number for number in ids if number != leader], len(ids) - 1)
        company = (len(ids) - 1) // 2 - 1
        side, rest = (leader, *others[:company]), others[company:]
        leaks = {link for other in rest[: rng.randint(1, 2)] for link in ((leader, other), (other, leader))}
        for link in [link for number in side for other in rest for link in ((number, other), (other, number))]:
            lost = {(*link, kind) for kind in self._kinds if link not in leaks or rng.random() < 0.5}
            world.blocked -= {(*link, kind) for kind in self._kinds}
            world.blocked |= lost

    def _toggle_urgent(self) -> None:
        """Makes a replica urgent, as if a client began to wait there, or no longer urgent."""
        world, rng = self.world, self.world.rng
        replica = rng.choice(list(world.hosts.values())).replica
        if replica is not None:
            replica.urgent = not replica.urgent
        if not world.is_healed:
            world.at(rng.expovariate(1 / world.options.urgent_every_s), self._toggle_urgent)

    def _stall(self) -> None:
        """Some replicas do not run for a while, as on a busy machine: all, a follower, or any, the leader too."""
        world, rng = self.world, self.world.stall_rng
        if world.is_healed:
            return
        world.counts["stalls"] += 1
        hosts = [host for host in world.hosts.values() if host.replica is not None]
        followers = [host for host in hosts if host.replica is not None and not host.replica.leads]
        stall_s = rng.expovariate(1 / world.options.stall_s)
        if not world.options.steady:
            chosen = rng.sample(hosts, rng.randint(0, len(hosts)))
        elif rng.random() < 0.5 or len(followers) == len(hosts):
            chosen = hosts
        else:
            chosen = [rng.choice(followers)]
        for host in chosen:
            host.stalled_until_s = world.now + stall_s + rng.uniform(0, 0.1) * world.options.suspect_s
        world.at(stall_s + rng.expovariate(1 / world.options.stall_every_s), self._stall)

    def _set_clock(self) -> None:
        """A clock that is wrong is set, to another wrong time."""
        world = self.world
        wrong = [host for host in world.hosts.values() if host.is_wrong]
        if not world.is_healed and wrong:
            world.set_clock(world.clock_rng.choice(wrong))
            world.at(world.clock_rng.expovariate(1 / world.options.clock_every_s), self._set_clock)

    def _crash_many(self) -> None:
        """Some or all replicas crash at once, as when the power fails."""
        world, rng = self.world, self.world.rng
        if world.is_healed:
            return
        for host in rng.sample(list(world.hosts.values()), rng.randint(1, len(world.hosts))):
            world.crash(host)
        world.at(rng.expovariate(0.5), self._crash_many)

    def _begin_replacement(self) -> None:
        world, rng = self.world, self.world.rng
        up = [host.replica for host in world.hosts.values() if host.replica is not None]
        if world.is_healed or not self.left:
            return
        if self.replacing is not None or not up:
            world.at(_REPLACE_RETRY_S, self._begin_replacement)
            return
        self.left -= 1
        world.counts["replacements"] += 1
        membership = max(up, key=lambda replica: replica.applied).membership
        old, new = rng.choice(membership.configurations[-1].ids), max(world.hosts) + 1
        self.replacing = (old, new, 1_000 + new)
        if world.options.set_back and rng.random() < world.options.set_back:
            self._set_back(world.hosts[old], [world.hosts[number] for number in membership.ids() if number != old])
        elif rng.random() < 0.6:  # it is gone already, and its disk with it
            world.hosts[old].is_gone = True
            world.crash(world.hosts[old])
        world.add_host(new, membership.ids(), 1_000 + new)
        self._ask()

    def _copy(self) -> None:
        """Copies the disks of all hosts."""
        world = self.world
        for host in world.hosts.values():
            host.copies.append(dict(host.disk))
        if not world.is_healed:
            world.at(world.rng.expovariate(1 / _COPY_EVERY_S), self._copy)

    def _set_back(self, host: FaultyHost, others: list[FaultyHost]) -> None:
        """A machine loses its disk, or gets an older copy of it: one that contradicts what all others have stored.

        Where some other one cannot know, acknowledged commands may be lost; nothing can be asked of such a run.
        """
        world, rng = self.world, self.world.rng
        reports = [read_records(other.disk.items()).seen.get(host.id, Seen()) for other in others]
        copies = [copy for copy in host.copies if all(_contradicts(copy, seen) for seen in reports)]
        world.crash(host)
        if copies and rng.random() < 0.8:
            world.counts["disks set back"] += 1
            host.disk = dict(rng.choice(copies))
            if rng.random() < 0.5 and host.disk:
                self._start_alone(host)
        else:
            world.counts["disks wiped"] += 1
            host.disk = {}

    def _start_alone(self, host: FaultyHost) -> None:
        """Starts a machine with an older copy some times where nobody hears it: it counts up to starts that were."""
        for _ in range(self.world.rng.randint(1, 3)):
            host.store(host.start(self.world.rng.getrandbits(64) | 1).take())
            host.crash(0)

    def _is_known(self, new: int) -> bool:
        """Returns whether all members have stored that the change took effect.

        Only then may the next machine be taken away: if the last one that knows of the change were lost, the others
        would wait for the old members for ever.
        """
        world = self.world
        informed = set()
        for host in world.hosts.values():
            if host.replica is not None and not host.replica.membership.changes:
                configuration = host.replica.membership.configurations[0]
                if read_records(host.disk.items()).chosen >= configuration.since - 1:
                    informed.add((host.id, configuration.ids))
        return any(new in ids and all((member, ids) in informed for member in ids) for _, ids in informed)

    def _ask(self) -> None:
        """Asks some replica for the change until it has taken effect there."""
        world, rng = self.world, self.world.rng
        assert self.replacing is not None
        old, new, token = self.replacing
        hosts = [host for host in world.hosts.values() if host.replica is not None and host.id not in (old, new)]
        if self._is_known(new):
            world.hosts[old].is_gone = True
            world.crash(world.hosts[old])
            self.replacing = None
            world.at(rng.expovariate(1.0), self._begin_replacement)
            return
        if hosts:
            host = rng.choice(hosts)
            assert host.replica is not None
            host.replica.replace(old, new, token, host.timer_s)
            world.turn(host)
        world.at(_REPLACE_RETRY_S, self._ask)


def _contradicts(copy: dict[bytes, bytes], seen: Seen) -> bool:
    """Returns whether a replica that starts with this disk contradicts what another one remembers of it."""
    records = read_records(copy.items())
    return (
        objection_to(Incarnation(records.incarnation + 1, (0, *records.starts), records.promised, records.voted), seen)
        is not None
    )
