"""The metrics that come with Surecast."""

from __future__ import annotations

from surecast.report.metric_registry import Metric, register_metric

__all__ = ["CATALOGUE"]

_RECEIVERS = ("subscriber", "class", "system")
_CLIENTS = ("subscriber", "publisher", "class", "system")
_SERVERS = ("broker", "overlay_link", "physical_link", "router")
_COMPONENTS = ("subscriber", "publisher", *_SERVERS)

_DELIVERY = (
    Metric(
        "reliability",
        "share",
        _CLIENTS,
        "Real-time reliability",
        "Share of the events of interest that arrive before their deadline; of a system, the mean over its "
        "subscribers.",
        "more",
    ),
    Metric(
        "on_time_probability",
        "share",
        _CLIENTS,
        "On-time probability",
        "Probability that a coded generation can be decoded before its deadline.",
        "more",
    ),
    Metric(
        "all_on_time_share",
        "share",
        ("publisher", "system"),
        "On time for all",
        "Share of the events that reach all their subscribers before their deadline.",
        "more",
    ),
    Metric(
        "recovered_share",
        "share",
        _RECEIVERS,
        "Recovered",
        "Share of the events that are on time and were completed by packets of other subscribers.",
    ),
    Metric(
        "success_share",
        "share",
        _RECEIVERS,
        "Success rate",
        "Share of the events of interest that are accepted for the subscriber and delivered, on time or late.",
        "more",
    ),
    Metric(
        "targets_met_share",
        "share",
        ("subscriber", "class", "system"),
        "Targets met",
        "Share of the stated QoS targets that are met.",
        "more",
        "target",
    ),
    Metric(
        "share_on_time",
        "share",
        _RECEIVERS,
        "On time",
        "Share of the events that arrive before their deadline.",
        "more",
    ),
    Metric("share_late", "share", _RECEIVERS, "Late", "Share of the events that arrive after their deadline.", "less"),
    Metric(
        "share_dropped",
        "share",
        _RECEIVERS,
        "Dropped",
        "Share of the events that are dropped or lost.",
        "less",
        "reason",
    ),
    Metric(
        "failed_connected_share",
        "share",
        _RECEIVERS,
        "Failures while connected",
        "Share of the events that arrive while the subscriber is connected and are dropped.",
        "less",
    ),
    Metric("share_queued", "share", _RECEIVERS, "Queued", "Share of the events still waiting at the end.", "less"),
    Metric("count_published", "count", _CLIENTS, "Events published", "Events published to it; of a publisher, by it."),
    Metric(
        "count_on_time", "count", _RECEIVERS, "Events on time", "Events that arrived before their deadline.", "more"
    ),
    Metric("count_late", "count", _RECEIVERS, "Events late", "Events that arrived after their deadline.", "less"),
    Metric(
        "count_dropped", "count", _RECEIVERS, "Events dropped", "Events that were dropped or lost.", "less", "reason"
    ),
    Metric("count_queued", "count", _RECEIVERS, "Events queued", "Events still waiting at the end.", "less"),
    Metric("count_duplicate", "count", _RECEIVERS, "Duplicates", "Events that arrived more than once.", "less"),
    Metric(
        "count_out_of_order",
        "count",
        _RECEIVERS,
        "Out of order",
        "Events that arrived against the total order.",
        "less",
    ),
    Metric(
        "join_probability",
        "share",
        _RECEIVERS,
        "Join probability",
        "Probability that an event published while the subscriber is disconnected joins its queue.",
    ),
    Metric(
        "buffer_size",
        "count",
        ("subscriber",),
        "Buffer size",
        "Events that fit into the subscriber's queue, the one in transmission included.",
    ),
    Metric(
        "event_lifetime_s",
        "s",
        ("subscriber",),
        "Lifetime",
        "Mean age at which an event for the subscriber expires.",
    ),
)

_TIME = (
    Metric(
        "delay_mean_s",
        "s",
        (*_CLIENTS, *_SERVERS),
        "Mean delay",
        "Mean time from publication to arrival of the events that arrive; of a component, mean time to pass it.",
        "less",
    ),
    Metric(
        "delay_quantile_s",
        "s",
        (*_CLIENTS, *_SERVERS),
        "Delay",
        "Quantile of the time from publication to arrival; of a component, of the time to pass it.",
        "less",
        "quantile",
    ),
    Metric(
        "response_mean_s",
        "s",
        _RECEIVERS,
        "Mean response time",
        "Mean time from acceptance into the subscriber's queue to the end of its transmission.",
        "less",
    ),
    Metric(
        "response_quantile_s", "s", _RECEIVERS, "Response time", "Quantile of the response time.", "less", "quantile"
    ),
    Metric(
        "notification_delay_worst_s",
        "s",
        ("broker", "class", "system"),
        "Worst-path notification delay",
        "Largest mean delay of notifications over all paths in use.",
        "less",
    ),
    Metric(
        "notification_delay_latest_s",
        "s",
        ("system",),
        "Latest notification delay",
        "Mean time from publication until the last broker with a matching subscription has processed it, of the "
        "notifications that reach anyone.",
        "less",
        "approximation",
    ),
    Metric(
        "subscription_delay_mean_s",
        "s",
        (*_RECEIVERS, "broker"),
        "Mean subscription delay",
        "Mean time until a new subscription is known wherever it has to be.",
        "less",
    ),
    Metric(
        "subscription_delay_worst_s",
        "s",
        ("broker", "class", "system"),
        "Worst-path subscription delay",
        "Largest mean delay of subscriptions over all paths in use.",
        "less",
    ),
    Metric(
        "commit_delay_mean_s",
        "s",
        ("broker", "system"),
        "Mean commit latency",
        "Mean time from an entry's proposal to its commitment by a majority of the replicas.",
        "less",
    ),
    Metric(
        "commit_delay_quantile_s",
        "s",
        ("broker", "system"),
        "Commit latency",
        "Quantile of the commit latency.",
        "less",
        "quantile",
    ),
    Metric(
        "acknowledgement_mean_s",
        "s",
        ("broker", "system"),
        "Mean acknowledgement time",
        "Mean time from a publication's arrival at a replicated broker to its acknowledgement.",
        "less",
    ),
    Metric(
        "acknowledgement_quantile_s",
        "s",
        ("broker", "system"),
        "Acknowledgement time",
        "Quantile of the acknowledgement time.",
        "less",
        "quantile",
    ),
    Metric(
        "cpu_per_event_s",
        "s",
        ("broker",),
        "Processor time per event",
        "Processor time that a publication takes, at all replicas together or at one of them.",
        "less",
        "role",
    ),
    Metric(
        "failover_mean_s",
        "s",
        ("broker", "system"),
        "Mean fail-over time",
        "Mean time without service after the loss of a leader or a home broker.",
        "less",
    ),
    Metric(
        "waiting_mean_s",
        "s",
        _SERVERS,
        "Mean waiting time",
        "Mean time in the queue before service begins.",
        "less",
        "kind",
    ),
    Metric(
        "waiting_averaged_s",
        "s",
        ("broker",),
        "Averaged waiting time",
        "Mean time in the queue over the sets of active subscriptions, each in its own steady state.",
        "less",
    ),
    Metric(
        "service_mean_s", "s", _SERVERS, "Mean service time", "Mean time of service of one message.", "less", "kind"
    ),
)

_LOAD = (
    Metric(
        "utilisation",
        "ratio",
        _SERVERS,
        "Utilisation",
        "Offered load over capacity; 1 or more means overload.",
        "less",
        "direction",
    ),
    Metric(
        "headroom_factor",
        "ratio",
        (*_SERVERS, "system"),
        "Headroom",
        "Factor by which all rates may grow before it is saturated; below 1 it is overloaded.",
        "more",
    ),
    Metric(
        "queue_length_mean",
        "count",
        ("subscriber", *_SERVERS),
        "Mean queue length",
        "Mean number of messages present, waiting or in service.",
        "less",
    ),
    Metric(
        "queue_length_max",
        "count",
        ("subscriber", *_SERVERS),
        "Longest queue",
        "Largest number of messages present at a time.",
        "less",
    ),
    Metric(
        "batch_size_mean",
        "count",
        ("broker",),
        "Mean batch",
        "Mean number of publications that a replicated broker orders in one instance.",
    ),
    Metric(
        "table_entries",
        "count",
        ("broker", "system"),
        "Routing-table entries",
        "Mean number of routing-table entries, for local clients and for neighbour brokers.",
        "less",
        "table",
    ),
    Metric(
        "rate_in_per_s",
        "1/s",
        ("subscriber", "broker", "router"),
        "Messages in",
        "Messages that arrive per second.",
        "",
        "kind",
    ),
    Metric(
        "rate_out_per_s",
        "1/s",
        ("publisher", "broker", "router"),
        "Messages out",
        "Messages that are sent per second.",
        "",
        "kind",
    ),
    Metric(
        "traffic_per_s",
        "1/s",
        ("overlay_link", "physical_link", "router", "class"),
        "Traffic",
        "Messages that pass per second, both directions together.",
        "less",
        "kind",
    ),
    Metric(
        "message_rate_per_s",
        "1/s",
        ("class", "system"),
        "Message rate",
        "Messages sent over overlay links per second, each link counted.",
        "less",
        "kind",
    ),
    Metric(
        "messages_per_event",
        "count",
        (*_CLIENTS, "broker", "overlay_link"),
        "Messages per event",
        "Messages sent over overlay links for one published event.",
        "less",
        "kind",
    ),
    Metric(
        "messages_minimum_per_event",
        "count",
        ("publisher", "system"),
        "Fewest messages",
        "Messages for one published event below which no paths can go: n / (1 - loss) for each home broker to be "
        "reached, with n packets of an event and the least loss of a link to it.",
    ),
    Metric(
        "bytes_per_event",
        "count",
        (*_CLIENTS, "broker", "overlay_link"),
        "Bytes per event",
        "Bytes of the messages sent for one published event, headers included.",
        "less",
        "kind",
    ),
    Metric(
        "forwarded_share",
        "share",
        ("overlay_link", "class", "system"),
        "Forwarded",
        "Share of the messages at hand that are forwarded over a link.",
        "less",
        "kind",
    ),
    Metric(
        "overhead_ratio",
        "ratio",
        (*_CLIENTS, "overlay_link"),
        "Overhead",
        "What is sent beyond the least necessary, over the least necessary.",
        "less",
    ),
    Metric(
        "publication_rate_per_s",
        "1/s",
        ("publisher", "broker", "class", "system"),
        "Publications",
        "Events published per second.",
    ),
    Metric(
        "subscription_rate_per_s",
        "1/s",
        ("broker", "class", "system"),
        "Subscriptions",
        "Subscriptions issued per second.",
    ),
    Metric(
        "subscriptions_active",
        "count",
        ("broker", "class", "system"),
        "Active subscriptions",
        "Mean number of subscriptions in force.",
    ),
    Metric(
        "throughput_per_s",
        "1/s",
        ("subscriber", "broker", "class", "system"),
        "Throughput",
        "Events delivered, or entries committed by a replicated broker, per second.",
        "more",
    ),
    Metric(
        "capacity_per_s",
        "1/s",
        (*_CLIENTS, *_SERVERS),
        "Capacity",
        "Highest sustainable rate: of a subscriber its maximum flow, of a publisher the least over its subscribers.",
        "more",
    ),
)

_DEPENDABILITY = (
    Metric(
        "availability",
        "share",
        (*_COMPONENTS, "system"),
        "Availability",
        "Share of the time in which it is up.",
        "more",
    ),
    Metric(
        "mtbf_s", "s", (*_COMPONENTS, "system"), "Mean time between failures", "Mean length of its up times.", "more"
    ),
    Metric("mttr_s", "s", (*_COMPONENTS, "system"), "Mean time to repair", "Mean length of its down times.", "less"),
    Metric(
        "outage_quantile_s",
        "s",
        (*_COMPONENTS, "system"),
        "Outage",
        "Quantile of the lengths of its down times.",
        "less",
        "quantile",
    ),
)

CATALOGUE = (*_DELIVERY, *_TIME, *_LOAD, *_DEPENDABILITY)
"""All metrics that come with Surecast, in the order in which tables show them."""

for _metric in CATALOGUE:
    register_metric(_metric)
