"""Speed of predicting reliability: 10,000 subscribers, 100 publishers, 100 brokers, all schemes.

Run without arguments. Prints the time of the first call (with compilation, unless it is cached) and of the second.
"""

from __future__ import annotations

import time

from surecast.prediction import SCHEMES, predict_reliability
from surecast.scenario import System, build, parse_text
from surecast.scenario.flows import flows_of

SCENARIO = """
surecast: 1
name: benchmark
seed: 1
overlay:
  brokers: [{{name: b, count: 100}}]
  links: {links}
  topic_trees: {{root: random}}
availability:
  brokers: {{availability: [0.90, 0.95], period: 5d}}
  links: {{availability: 0.99, period: 60000s}}
workload:
  topics: [{{name: topic, count: 100}}]
  deadline: 3600s
  publishers: [{{name: p, count: 100, home: random, topics: one-each, rate: 1/min}}]
  subscribers: [{{name: s, count: 10000, home: random, topics: by-popularity}}]
"""
OVERLAYS = {
    "random tree": "{build: random-tree}",
    "random graph, mean degree 3": "{build: random-graph, mean_degree: 3}",
}


def measure(label: str, system: System) -> None:
    flows = flows_of(system)
    print(f"{label}: {len(flows.routes):,} distinct routes, {len(flows.interests):,} distinct interests")
    for call in ("first", "second"):
        begin = time.perf_counter()
        report = predict_reliability(system)
        print(f"  {call} call: {time.perf_counter() - begin:.2f} s, {len(report):,} figures")
    for scheme in SCHEMES:
        begin = time.perf_counter()
        predict_reliability(system, [scheme])
        print(f"  {scheme} alone: {time.perf_counter() - begin:.2f} s")


if __name__ == "__main__":
    for name, links in OVERLAYS.items():
        measure(name, build(parse_text(SCENARIO.format(links=links))))
