"""An MQTT broker and an overlay node as one plain object: bytes of clients and neighbours go in and come out.

    core = BrokerCore(settings, traffic=LocalTraffic())
    broker = OverlayBroker("b1", plan, core, records=store.items(), now=now)
    connection = LinkConnection(broker, "b2")     # this end called; LinkConnection(broker) where the other did

    connection.receive(data, now)                 # PeerError: close the transport, then connection.close(now)
    core.receive(client, data, now)
    broker.settle(now)                            # the end of a turn: before the commit
    store.commit(core.take_journal())
    transport.write(connection.output())          # after it, as the `out` of clients; not while the transport is full

Publishers whose session keys are in `broker.held` are not to be read for now. `connection.ping(now)` asks whether the
other end is there; whatever comes shows that it is.
"""

from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.overlay_broker.link_connection import LinkConnection
from surecast.protocol.overlay_broker.overlay_broker import OverlayBroker

__all__ = ["LinkConnection", "LocalTraffic", "OverlayBroker"]
