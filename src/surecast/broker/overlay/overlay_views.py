"""The answers of a broker of an overlay to administrators: links, demand of neighbours, and accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surecast.broker.overlay.overlay_group import OverlayGroupServer
    from surecast.broker.overlay.overlay_server import OverlayServer

__all__ = ["accounts_of", "links_of", "routes_of", "sessions_of"]


def links_of(server: OverlayServer | OverlayGroupServer) -> dict[str, Any]:
    """Returns the links of a broker, and who was turned away at its link port."""
    node, links = server.overlay.node, server.links
    return {
        "broker": node.name,
        "incarnation": node.incarnation,
        "links": [link.figures() for link in links.links.values()],
        "turned_away": dict(links.turned_away),
    }


def routes_of(server: OverlayServer | OverlayGroupServer, with_filters: bool = False) -> dict[str, Any]:
    """Returns how many filters each neighbour has announced on each tree, and the filters too if they are wanted;
    likewise the members of shared subscriptions at all brokers, as they are known here. `homes` says how many lasting
    sessions of the whole overlay are known, None where nobody is sent home.

    `held_sum` is the sum of hashes over what the neighbour has announced, `announced_sum` over what was announced to
    it, in hexadecimal: where each equals the other at the other end, both ends of the link know the same.
    """
    node = server.overlay.node
    routes = []
    for number, tree in enumerate(node.plan.trees):
        for neighbour in node.plan.tree_neighbours(number, node.name):
            filters = node.wanted_by(neighbour, number)
            held, announced = node.demand_sums(neighbour, number)
            route: dict[str, Any] = {
                "tree": number,
                "neighbour": neighbour,
                "algorithm": node.plan.algorithm(number, node.name, neighbour),
                "scheme": tree.scheme,
                "count": len(filters),
                "held_sum": f"{held:016x}",
                "announced_sum": None if announced is None else f"{announced:016x}",
            }
            if with_filters:
                route["filters"] = [str(joint) for joint in filters]
            routes.append(route)
    members = [str(joint) for joint in node.members()]
    homes = len(server.overlay.homes) if server.overlay.homes is not None else None
    members_of = members if with_filters else len(members)
    return {"broker": node.name, "routes": routes, "members": members_of, "homes": homes}


def sessions_of(server: OverlayServer) -> dict[str, Any]:
    """Returns where the sessions of all clients are at home as far as a broker knows, which parts of sessions it has,
    and where these go; with the figures of sessions that have moved. `homes` is None where nobody asks for them."""
    overlay = server.overlay
    homes, moves, known = overlay.homes, overlay.moves, overlay.core.sessions.by_key
    rows = []
    for key, session in known.items():
        home = homes.home_of(key) if homes is not None else ""
        if session.persistent:
            rows.append(
                {
                    "user": session.user,
                    "client": session.client,
                    "home": home,
                    "connected": session.connection is not None,
                    "queued": session.queued,
                    "going_to": moves.target_of(key) if moves is not None else "",
                }
            )
    figures = ("moved_in", "moved_out", "on_their_way", "waiting", "begun_anew", "messages_in", "repeated")
    return {
        "broker": overlay.name,
        "homes": len(homes) if homes is not None else None,
        "sessions": rows,
        "moves": {name: getattr(moves, name) for name in figures} if moves is not None else None,
    }


def accounts_of(server: OverlayServer | OverlayGroupServer) -> dict[str, Any]:
    """Returns the fate of all events at a broker since it was started, by neighbour, and what does not add up."""
    node = server.overlay.node
    accounts, hops, problems = node.accounts, [], []
    messages, table_sizes = node.messages(), node.table_sizes()
    for neighbour, hop in accounts.hops.items():
        in_custody = node.custody.events_unsent(neighbour)
        hops.append(
            {
                "neighbour": neighbour,
                "offered": hop.offered,
                "acknowledged": hop.acknowledged,
                "lost": hop.lost,
                "detoured": hop.detoured,
                "dropped": {reason: count for reason, count in hop.dropped.items() if count},
                "on_link": hop.on_link,
                "in_custody": in_custody,
                "sent": messages[neighbour],
                "table_entries": table_sizes[neighbour],
            }
        )
        if problem := hop.problem(in_custody):
            problems.append(f"{neighbour}: {problem}")
    return {
        "broker": node.name,
        "published": accounts.published,
        "received": accounts.received,
        "delivered": accounts.delivered,
        "duplicates": accounts.duplicates,
        "too_old": accounts.too_old,
        "expired": accounts.expired,
        "refused": accounts.refused,
        "shared": accounts.shared,
        "handed_on": accounts.handed_on,
        "unclaimed": accounts.unclaimed,
        "malformed": server.overlay.deliveries.malformed,
        "hops": hops,
        "problems": problems,
    }
