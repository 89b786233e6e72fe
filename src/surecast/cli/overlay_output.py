"""The output of `surecast overlay status`, `links`, `routes` and `accounts`, from the answers of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from surecast.cli.output import console, print_table

__all__ = [
    "accounts_verdict",
    "link_rows",
    "links_verdict",
    "print_accounts",
    "print_links",
    "print_routes",
    "print_status",
]

Answers = Mapping[str, Mapping[str, Any]]


def print_status(statuses: Answers, links: Answers, addresses: Mapping[str, str]) -> None:
    """Prints a line for each broker, under a verdict."""
    _say(status_verdict(statuses, links))
    rows = []
    for name, status in statuses.items():
        if "error" in status:
            rows.append([name, addresses[name], str(status["error"]), "", "", "", ""])
            continue
        own = links[name].get("links", [])
        up = sum(link["is_up"] for link in own)
        accounts = status["accounts"]
        figures = [f"{up} of {len(own)}", f"{status['connected']:,}", f"{status['published']:,}"]
        rows.append([name, addresses[name], "runs", *figures, f"{accounts['delivered']:,}"])
    print_table(("broker", "MQTT", "state"), ("links", "clients", "published", "delivered"), rows)


def status_verdict(statuses: Answers, links: Answers) -> str:
    """Returns whether all brokers run and all links are up, or what does not."""
    down = [name for name, status in statuses.items() if "error" in status]
    brokers = f"{len(down)} of {len(statuses)} brokers do not run: {_few(down)}" if down else _all(statuses, "broker")
    return f"{brokers}; {links_verdict(link_rows(links))}"


def link_rows(answers: Answers) -> list[dict[str, Any]]:
    """Returns each link once, from what the brokers at its two ends say."""
    ends = {(name, link["neighbour"]): link for name, answer in answers.items() for link in answer.get("links", [])}
    rows = []
    for (a, b), link in ends.items():
        other = ends.get((b, a))
        if other is not None and not link["dials"]:
            continue  # the row of the broker that dials has it
        sides = [side for side in (link, other) if side is not None]
        reasons = [f"{name}: {side['reason']}" for name, side in zip((a, b), sides, strict=False) if side["reason"]]
        rows.append(
            {
                "a": a,
                "b": b,
                "is_up": all(side["is_up"] for side in sides) and other is not None,
                "reason": "; ".join(reasons) or ("" if other is not None else f"{b} does not answer"),
                "since_s": min(side["since_s"] for side in sides),
                "round_trip_s": link["round_trip_s"],
                "clock_ahead_s": link["clock_ahead_s"],
                "bytes_a_to_b": link["bytes_out"],
                "bytes_b_to_a": link["bytes_in"],
                "ups": max(side["ups"] for side in sides),
                "ends": [side["ends"] for side in sides],
                "gates": [side["gate"] for side in sides],
            }
        )
    return sorted(rows, key=lambda row: (row["a"], row["b"]))


def links_verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns whether all links are up, or which are down."""
    down = [f"{row['a']} - {row['b']}" for row in rows if not row["is_up"]]
    if down:
        return f"{len(down)} of {len(rows)} links are down: {_few(down)}"
    return f"all {len(rows)} links are up" if len(rows) != 1 else "its only link is up"


def print_links(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints a line for each link, under a verdict."""
    _say(links_verdict(rows))
    table = []
    for row in rows:
        state = "up" if row["is_up"] else f"down: {row['reason']}"
        round_trip = "" if row["round_trip_s"] is None else f"{1000 * row['round_trip_s']:.2f} ms"
        sizes = [f"{row[name]:,}" for name in ("bytes_a_to_b", "bytes_b_to_a")]
        table.append(
            [f"{row['a']} - {row['b']}", state, f"{row['since_s']:,.0f} s", round_trip, *sizes, str(row["ups"])]
        )
    print_table(("link", "state"), ("since", "round trip", "bytes ->", "bytes <-", "times up"), table)


def print_routes(answers: Answers) -> None:
    """Prints how many filters each broker holds of each neighbour on each tree, and the filters if they were asked."""
    rows = []
    for name, answer in answers.items():
        for route in answer.get("routes", []):
            way = f"{route['neighbour']} -> {name}"
            rows.append([way, str(route["tree"]), route["algorithm"], route["scheme"], f"{route['count']:,}"])
    total = sum(route["count"] for answer in answers.values() for route in answer.get("routes", []))
    silent = [name for name, answer in answers.items() if "error" in answer]
    _say(
        f"{total:,} filters at {len(answers) - len(silent)} brokers"
        + (f"; no answer: {_few(silent)}" if silent else "")
    )
    print_table(("announced", "tree", "algorithm", "scheme"), ("filters",), rows)
    for name, answer in answers.items():
        for route in answer.get("routes", []):
            for text in route.get("filters", []):
                _say(f"{route['neighbour']} -> {name}, tree {route['tree']}: {text}")


def print_sessions(answers: Answers) -> None:
    """Prints where the lasting sessions are, and how many have moved."""
    rows = []
    total = moving = 0
    for name, answer in answers.items():
        for row in answer.get("sessions", []):
            total += 1
            moving += bool(row["going_to"])
            state = f"moving to {row['going_to']}" if row["going_to"] else "connected" if row["connected"] else "away"
            rows.append([row["client"], row["user"], name, state, f"{row['queued']:,}"])
    silent = [name for name, answer in answers.items() if "error" in answer]
    _say(
        f"{total:,} lasting sessions at {len(answers) - len(silent)} brokers, {moving:,} of them moving"
        + (f"; no answer: {_few(silent)}" if silent else "")
    )
    print_table(("client", "user", "broker", "state"), ("queued",), rows)
    for name, answer in answers.items():
        if moves := answer.get("moves"):
            came = f"{moves['moved_in']:,} have come with {moves['messages_in']:,} messages"
            waits = f"{moves['waiting']:,} clients wait, {moves['begun_anew']:,} began anew"
            _say(f"{name}: {came}, {moves['moved_out']:,} have gone; {waits}")


def accounts_verdict(answers: Answers, cut: Mapping[str, Any]) -> str:
    """Returns whether the accounts of all brokers, and those of their links as of one cut, balance, or which do not."""
    silent = [name for name, answer in answers.items() if "error" in answer]
    wrong = [f"{name}, {text}" for name, answer in answers.items() for text in answer.get("problems", [])]
    wrong += cut["problems"]
    verdict = (
        f"accounts do not balance at {'; '.join(wrong)}" if wrong else "the accounts of all brokers that answer balance"
    )
    if not silent and not wrong:
        verdict = f"the accounts of {_all(answers, 'broker').removesuffix(' run').removesuffix(' runs')} balance"
    return verdict + (f"; no answer: {_few(silent)}" if silent else "")


def print_accounts(answers: Answers, cut: Mapping[str, Any]) -> None:
    """Prints what came to each broker, what became of what it had for each neighbour, and what went over each link."""
    _say(accounts_verdict(answers, cut))
    brokers, hops = [], []
    for name, answer in answers.items():
        if "error" in answer:
            continue
        figures = ("published", "received", "delivered", "duplicates", "expired")
        brokers.append([name, *(f"{answer[each]:,}" for each in figures)])
        for hop in answer["hops"]:
            dropped = sum(hop["dropped"].values())
            counts = (hop["offered"], hop["acknowledged"], hop["lost"], hop["detoured"], dropped)
            waiting = (hop["on_link"], hop["in_custody"])
            hops.append([f"{name} -> {hop['neighbour']}", *(f"{count:,}" for count in (*counts, *waiting))])
    print_table(("broker",), ("published", "received", "delivered", "duplicates", "expired"), brokers)
    headers = ("offered", "acknowledged", "lost", "detoured", "dropped", "on link", "custody")
    print_table(("link",), headers, hops)
    for name, answer in answers.items():
        for hop in answer.get("hops", []):
            reasons = {reason: count for reason, count in hop["dropped"].items() if count}
            if reasons:
                text = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
                _say(f"dropped from {name} to {hop['neighbour']}: {text}")
        if answer.get("unclaimed"):
            _say(f"dropped at {name}, as no member of the shared subscription is left: {answer['unclaimed']:,}")
    _print_cut(cut)


def _print_cut(cut: Mapping[str, Any]) -> None:
    """Prints the events that each link has carried in the session that goes on, as of one cut."""
    compared = [row for row in cut["links"] if row["received"] is not None]
    if compared:
        counts = [[f"{row[each]:,}" for each in ("sent", "received", "in_transit")] for row in compared]
        names = [f"{row['from']} -> {row['to']}" for row in compared]
        rows = [[name, *row] for name, row in zip(names, counts, strict=True)]
        print_table(("link",), ("sent", "received", "in transit"), rows)
    for row in cut["links"]:
        if row["note"]:
            _say(f"not compared, {row['from']} to {row['to']}: {row['note']}")


def _all(things: Mapping[str, Any], noun: str) -> str:
    return f"all {len(things)} {noun}s run" if len(things) != 1 else f"its only {noun} runs"


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")


def _say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
