"""The shapes of overlays: chains, and a diamond."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHAINS", "DIAMOND", "PAIR", "TOPOLOGIES", "Topology"]

Link = tuple[str, str]


@dataclass(frozen=True)
class Topology:
    """Brokers and links. Of each link the first broker dials. `spare` links are not in the tree of those who need one.

    Publishers are at the first broker, subscribers at the last.
    """

    name: str
    brokers: tuple[str, ...]
    tree: tuple[Link, ...]
    spare: tuple[Link, ...] = ()

    @property
    def links(self) -> tuple[Link, ...]:
        """All links."""
        return self.tree + self.spare

    @property
    def entry(self) -> str:
        """The broker of the publishers."""
        return self.brokers[0]

    @property
    def exit(self) -> str:
        """The broker of the subscribers."""
        return self.brokers[-1]

    @property
    def hops(self) -> int:
        """Brokers that an event passes."""
        return 3 if self.spare else len(self.brokers)


def _chain(length: int) -> Topology:
    names = tuple(f"b{number}" for number in range(1, length + 1))
    return Topology(f"chain-{length}", names, tuple(zip(names[1:], names, strict=False)))


CHAINS = tuple(_chain(length) for length in (1, 3, 5))
PAIR = _chain(2)
DIAMOND = Topology("diamond", ("a", "b", "c", "d"), (("b", "a"), ("c", "a"), ("d", "b")), (("d", "c"),))
TOPOLOGIES = (*CHAINS, DIAMOND)
