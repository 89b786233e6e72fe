"""Some dozens of seeds of the fault simulation; `tools/overlay_seeds.py` runs thousands."""

from __future__ import annotations

import pytest
from tests.protocol.overlay.fault_world import run_seed
from tests.protocol.overlay.node_bench import NodeBench
from tests.seeds import seeds

from surecast.protocol.demand import JointFilter
from surecast.protocol.link import NumberedFrame
from surecast.protocol.overlay.node_events import NodeEvents
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree


@pytest.mark.parametrize("first", seeds(3, range(0, 60, 10)))
def test_every_event_has_its_fate_at_every_broker(first: int) -> None:
    kinds: set[str] = set()
    for seed in range(first, first + 10):
        what, problems, world = run_seed(seed)
        assert problems == [], what
        kinds |= world.faults.keys()
    assert {"freeze", "slow", "partition", "flap"} <= kinds


class _ForgetsWhoWaits(OverlayNode):
    """Acknowledges what it does not keep for its neighbours."""

    def restore(self, records):  # type: ignore[no-untyped-def]
        super().restore({key: record for key, record in records.items() if key[0] != "held"})


class _DeliversBothWays(NodeEvents):
    """Does not look whether its clients have had an event by a detour."""

    def _deliver_best_effort(self, tree, batch):  # type: ignore[no-untyped-def]
        self._deliver([batch])


class _NeverSendsAgain(NodeEvents):
    """Leaves what a session has lost where it is."""

    def lose(self, neighbour, lost, unsent=()):  # type: ignore[no-untyped-def]
        super().lose(neighbour, (), unsent)


@pytest.mark.parametrize("broken", [_ForgetsWhoWaits, _DeliversBothWays, _NeverSendsAgain])
def test_a_broken_node_is_found_out(
    broken: type[OverlayNode] | type[NodeEvents], monkeypatch: pytest.MonkeyPatch
) -> None:
    if issubclass(broken, NodeEvents):
        monkeypatch.setattr("surecast.protocol.overlay.overlay_node.NodeEvents", broken)
        assert any(run_seed(seed)[1] for seed in range(60))
    else:
        assert any(run_seed(seed, node=broken)[1] for seed in range(60))


def test_what_a_neighbour_has_received_of_a_session_that_was_given_up_is_not_lost() -> None:
    plan = OverlayPlan(("b1", "b2"), (("b1", "b2"),), (Tree((("b1", "b2"),)),))
    bench = NodeBench(plan, NodeSettings(resume_s=5.0))
    bench.demand("b2", JointFilter("#", qos=1))
    b1, b2 = bench.node("b1"), bench.node("b2")
    for _ in range(3):
        b1.publish("stock", 1, 0.0, qos=1)
    frames = [each for each in b1.output("b2") if isinstance(each, NumberedFrame)]
    for frame in frames[:2]:
        b2.receive("b1", frame, 0.0)  # and the acknowledgements are lost with the connection
    b1.link_down("b2", 0.0)
    b2.link_down("b1", 0.0)
    b1.tick(10.0)
    accounts = b1.accounts.hops["b2"]
    assert (accounts.lost, accounts.acknowledged) == (3, 0)
    b1.hello("b2")
    b1.link_up("b2", b2.hello("b1"), 10.0)
    assert (accounts.lost, accounts.acknowledged) == (1, 2)
    assert accounts.problem(0) == ""
