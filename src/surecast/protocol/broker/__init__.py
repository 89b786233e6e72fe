"""The MQTT broker without sockets, clocks and disks: sessions, queues, routing, retained messages, wills, accounts."""

from surecast.protocol.broker.accounts import REASONS, Accounts
from surecast.protocol.broker.broker_settings import OVERFLOWS, BrokerSettings, Overflow
from surecast.protocol.broker.connection import Connection, Origin, Phase
from surecast.protocol.broker.core import BrokerCore, everyone
from surecast.protocol.broker.incoming import Authorise
from surecast.protocol.broker.limits import ClientRule, Limits, LimitTable, Overrides
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.observer import ConnectionHooks, Counters, Observer
from surecast.protocol.broker.session import Session, Subscription
from surecast.protocol.broker.state_journal import Record
from surecast.protocol.broker.system_topics import publish_system_topics, system_values

__all__ = [
    "OVERFLOWS",
    "REASONS",
    "Accounts",
    "Authorise",
    "BrokerCore",
    "BrokerSettings",
    "ClientRule",
    "Connection",
    "ConnectionHooks",
    "Counters",
    "LimitTable",
    "Limits",
    "Message",
    "Observer",
    "Origin",
    "Overflow",
    "Overrides",
    "Phase",
    "Record",
    "Session",
    "Subscription",
    "everyone",
    "publish_system_topics",
    "system_values",
]
