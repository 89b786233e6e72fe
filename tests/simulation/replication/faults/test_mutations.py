"""The simulator finds a broken protocol: each mutation breaks a property in the world of its seed."""

from __future__ import annotations

import pytest
from paxos_mutations import MUTATIONS

from surecast.simulation.replication.faults import run_seed


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = MUTATIONS[name]
    whole = run_seed(mutation.seed, mutation.replicas, mutation.variant, mutation.mode)
    assert whole.held, whole.violation
    mutation.patch(monkeypatch)
    broken = run_seed(mutation.seed, mutation.replicas, mutation.variant, mutation.mode)
    assert broken.violation.startswith(mutation.breaks)
