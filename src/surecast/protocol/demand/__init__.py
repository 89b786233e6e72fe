"""The demand behind each link of an overlay: joint filters, their summaries for neighbours, and who wants an event.

>>> from surecast.protocol.filters import parse
>>> summary, table = SUMMARIES["covering"](), DemandTable(["b1"])
>>> table.apply("b1", summary.change(added=[JointFilter("stock/#", parse("price > 35"), qos=1)]))
>>> table.find("stock/acme").neighbours({"price": 37})
{'b1': 1}
"""

from surecast.protocol.demand.cover_index import CoverIndex
from surecast.protocol.demand.demand_table import DemandTable, TopicDemand
from surecast.protocol.demand.filter_hashes import DEPTH, FANOUT, FilterHashes, Sum
from surecast.protocol.demand.joint_filter import EVERY_CONTENT, JointFilter, Members, joint_hull, joint_merge
from surecast.protocol.demand.member_table import MemberTable, SharedDemand
from surecast.protocol.demand.subscriptions import Subscription, SubscriptionKey, SubscriptionRecord, Subscriptions
from surecast.protocol.demand.summaries import (
    SUMMARIES,
    DemandChange,
    DemandSummary,
    register_summary,
    unregister_summary,
)
from surecast.protocol.demand.tree_demand import (
    FLOODING,
    LOCAL,
    DemandBucket,
    DemandFrame,
    DemandHashes,
    DemandUpdate,
    TreeDemand,
    around,
)

__all__ = [
    "DEPTH",
    "EVERY_CONTENT",
    "FANOUT",
    "FLOODING",
    "LOCAL",
    "SUMMARIES",
    "CoverIndex",
    "DemandBucket",
    "DemandChange",
    "DemandFrame",
    "DemandHashes",
    "DemandSummary",
    "DemandTable",
    "DemandUpdate",
    "FilterHashes",
    "JointFilter",
    "MemberTable",
    "Members",
    "SharedDemand",
    "Subscription",
    "SubscriptionKey",
    "SubscriptionRecord",
    "Subscriptions",
    "Sum",
    "TopicDemand",
    "TreeDemand",
    "around",
    "joint_hull",
    "joint_merge",
    "register_summary",
    "unregister_summary",
]
