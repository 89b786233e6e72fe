"""Writes broker-configuration.md, group-configuration.md and overlay-file.md in docs/reference from the models, so that
the reference cannot drift from the code."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from surecast.broker import config_models as models
from surecast.broker import group_config as group
from surecast.broker.overlay import overlay_file as overlay
from surecast.broker.replica.group_file import PaxosSpec
from surecast.documents.validation import Spec

Sections = list[tuple[str, Any]]

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
HEAD = """# The broker's configuration file

Every field of the file that `surecast broker --config FILE` reads. This page is written from the models by
`tools/broker_reference.py`. `surecast broker --check-config FILE` says everything that is wrong with a file, and where.
All fields have the default shown, except those marked **required**. `--set FIELD=VALUE` goes before the file.

Durations are written with their units, `250ms`, `10s`, `2h`; so are sizes, `16MB`, `64MiB`, and rates, `500/s`.
Relative paths start at the folder of the file. [Run a broker](../guides/run-a-broker.md) shows how to use it.
"""
SECTIONS: Sections = [
    ("The whole file", models.BrokerConfig),
    ("listeners", models.ListenerSpec),
    ("state", models.StateSpec),
    ("security", models.SecuritySpec),
    ("limits", models.LimitsSpec),
    ("clients", models.ClientLimitsSpec),
    ("limits of listeners and clients", models.OverridesSpec),
    ("event_log", models.EventLogSpec),
    ("http", models.HttpSpec),
    ("log", models.LogSpec),
]
GROUP_HEAD = """# The group's file

Every field of the file of a replicated broker, which `surecast broker --group FILE --id N` and `surecast cluster` read.
All replicas have the same file. This page is written from the models by `tools/broker_reference.py`. All fields have
the default shown, except those marked **required**. A replica that starts says what is wrong with its file, and where.

Durations are written with their units, `250ms`, `10s`, `2h`; so are sizes, `16MB`, `64MiB`, and rates, `500/s`.
Relative paths start at the folder of the file. [Run a replicated broker](../guides/run-a-replicated-broker.md) shows
how to use it.
"""
GROUP_SECTIONS: Sections = [
    ("The whole file", group.BrokerGroupSpec),
    ("replicas", group.BrokerReplicaSpec),
    ("paxos", PaxosSpec),
    ("order", group.OrderSpec),
    ("zap", group.ZapSpec),
]
GROUP_TAIL = """
## What may change

- **Users, access rules, limits, certificates, `log.level`, `drain`**: SIGHUP to every replica. Access rules and limits
  of the last one hold for all.
- **The address of a replica**: stop it, change the file everywhere, start it. It tells the others where it is.
- **A replica**: [replace it](../guides/run-a-replicated-broker.md#replace-a-replica) by one with a new number.
- **`paxos`, `sync`, `order`, the secret**: stop all replicas, change the file everywhere, start them.
- **`zap`**: a new group, [restored](../guides/run-a-replicated-broker.md#restore-it) from a backup. The application is
  part of the replicated state, so all replicas must begin to run it at the same place of the log.

Signals and exit codes are those of [a broker](broker-configuration.md#signals-and-exit-codes). A replica that must
not be started again as it is exits with 3: its state is lost or damaged, or the others do not let it in.
"""
OVERLAY_HEAD = """# The overlay's file

Every field of the file of an overlay of brokers, which `surecast broker --overlay FILE --name NAME` and
`surecast overlay` read. All brokers have the same file; `surecast overlay plan SCENARIO` writes it, and
`surecast overlay check FILE` says everything that is wrong with one. This page is written from the models by
`tools/broker_reference.py`. All fields have the default shown, except those marked **required**.

Durations are written with their units, `250ms`, `10s`, `2h`; so are sizes, `16MB`, `64MiB`, and rates, `500/s`.
Relative paths start at the folder of the file. [Run an overlay](../guides/run-an-overlay.md) shows how
to use it, and [the overlay node](../background/overlay.md) says what the plan means.
"""
OVERLAY_SECTIONS: Sections = [
    ("The whole file", overlay.OverlayFile),
    ("brokers", overlay.OverlayBrokerSpec),
    ("trees", overlay.TreeSpec),
    ("algorithms", overlay.LinkSpec),
    ("prefixes", overlay.PrefixSpec),
]
OVERLAY_TAIL = """
## What may change

`epoch`, the names in `brokers`, `links`, `trees` and `prefixes` are the plan, and `hash` is its check sum. Two brokers
whose plans differ refuse each other, so a plan changes at all brokers: stop them, change the file everywhere, write a
higher `epoch` and the hash that `surecast overlay check` asks for, start them. Addresses, times and limits are no part
of the plan; a broker that is started again has the new ones.
"""
# What a group that is no broker has too, and a broker does not use: its clients come by MQTT.
LEFT_OUT = {"client_secret_file", "request_size"}
WORDS = {
    "AddressText": "address, `host:port`",
    "FilePath": "path",
    "Size": "size",
    "Rate": "rate",
    "PositiveDuration": "duration",
    "Duration": "duration",
    "Count": "whole number from 1",
    "Word": "whole number from 1 to 65535",
    "Port": "port",
    "Ends": "list of two names",
    "tuple[Ends, ...]": "list of pairs of names",
    "SchemeName": "scheme",
    "AlgorithmName": "algorithm",
    "bool": "`true`, `false`",
}
RULES = """
## Access rules

A file of access rules, and each entry of `security.rules`, has lines of this form:

    allow|deny  publish|subscribe|all  FILTER  [user=NAME] [client=ID] [anonymous]

`user=` and `client=` take `*` for any characters; `anonymous` means clients without a user name; without any of them a
rule is for everybody. In the filter, `%u` stands for the user's name and `%c` for the client identifier; a rule does
not allow anything to a client whose name has `+`, `#`, `/` or `%` in it where that name would be filled in. A filter
with spaces goes in quotes. In a file, a line that begins with `#` is a comment.

The first rule that says something about a topic decides. Once there are rules, what none of them allows is denied. A
subscription with wildcards is allowed only if one rule allows everything it matches and no rule before that one denies
any of it. `#` does not include topics that begin with `$`.

## Users

A users file has a line `NAME:HASH` for each user, with a hash by argon2id; `surecast passwd FILE USER` writes it,
readable for its owner alone. A client whose certificate gives its name (`use_certificate_name`) needs no entry.

## Signals and exit codes

SIGTERM and SIGINT stop the broker as [its contract](../semantics.md#stopping) says; a second one does not wait for
slow clients.

SIGHUP reads the configuration file again, and the users, the access rules and the certificates that it names; what the
command line said still goes before it. Limits, those of clients and listeners included, hold at once, except that what
a client was told when it connected (its receive maximum, the largest packet, topic aliases) holds until it connects
again. Subscriptions that are not allowed any more end; users who are gone are disconnected, and so are clients without
a name where one is asked for now; open connections keep their TLS. What is bound or opened once stays as it is, and a
warning names it: the name, listeners and their kind, address and path, `state`, `event_log`, `http` but for a renewed
certificate, `admin_socket`, `system_interval`, `limits.topic_levels`, `limits.user_properties`,
`limits.packet_filters` and `log.format`. If anything is wrong, all stays
as it was, and an error says why.

| code | meaning |
|---|---|
| 0 | stopped as asked |
| 1 | could not start: the configuration is wrong, a port is taken, the folder is in use or damaged |
| 2 | the command line is wrong |
| 3 | the state could not be written any more; nothing was acknowledged after that |
"""


def main() -> None:
    pages = {
        REFERENCE / "broker-configuration.md": page(HEAD, SECTIONS, RULES),
        REFERENCE / "group-configuration.md": page(GROUP_HEAD, GROUP_SECTIONS, GROUP_TAIL),
        REFERENCE / "overlay-file.md": page(OVERLAY_HEAD, OVERLAY_SECTIONS, OVERLAY_TAIL),
    }
    for file, text in pages.items():
        if "--check" not in sys.argv:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            sys.exit(f"{file} is stale: run tools/broker_reference.py")


def page(head: str, sections: Sections, tail: str) -> str:
    return "\n".join([head, *(_section(title, model, sections) for title, model in sections)]) + tail


def _section(title: str, model: Any, sections: Sections) -> str:
    lines = [
        f"## {title}\n",
        " ".join((model.__doc__ or "").split()) + "\n",
        "| field | value | default | meaning |",
        "|---|---|---|---|",
    ]
    schema = model.model_json_schema()["properties"]
    sentences = _sentences(model)
    for name in model.model_fields:
        if name in LEFT_OUT:
            continue
        meaning = " ".join(sentences[name].split())
        value = _value(model, name, schema[name], sections)
        lines.append(f"| `{name}` | {value} | {_default(model, name)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _sentences(model: Any) -> dict[str, str]:
    """The text under each field of a model and of those that it derives from."""
    sentences: dict[str, str] = {}
    for part in reversed(model.__mro__[: model.__mro__.index(Spec)]):
        (definition,) = ast.parse(inspect.getsource(part)).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                sentences[ast.unparse(field.target)] = ast.literal_eval(text.value)
    return sentences


def _annotation(model: Any, name: str) -> str:
    """The type of a field as it is written, in the model or one that it derives from."""
    return str(next(part.__annotations__[name] for part in model.__mro__ if name in part.__annotations__))


def _value(model: Any, name: str, node: dict[str, Any], sections: Sections) -> str:
    text = _annotation(model, name)
    elsewhere = "" if sections is SECTIONS else "broker-configuration.md"
    for place, known in (("", sections), (elsewhere, SECTIONS)):
        for title, part in known:
            if part.__name__ in re.findall(r"\w+", text):
                kind = "list of mappings" if "tuple" in text else "mapping"
                return f"{kind}, see [{title}]({place}#{title.replace(' ', '-')})"
    for word, words in WORDS.items():
        if text.removesuffix(" | None") == word:
            return words
    for option in (node, *node.get("anyOf", ())):
        if "enum" in option:
            return ", ".join(f"`{value}`" for value in option["enum"])
        if option.get("type") == "array":
            return "list of whole numbers" if option["items"].get("type") == "integer" else "list of texts"
        if option.get("type") == "integer":
            return "whole number"
    return "text"


def _default(model: Any, name: str) -> str:
    field = model.model_fields[name]
    if field.is_required():
        return "**required**"
    if field.default is None or field.default == () or "Spec" in _annotation(model, name):
        return ""
    dumped = model.model_construct(**{name: field.default}).model_dump(mode="json", include={name})[name]
    return f"`{str(dumped).lower() if isinstance(dumped, bool) else dumped}`"


if __name__ == "__main__":
    main()
