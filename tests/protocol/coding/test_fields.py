"""The fields against polynomial arithmetic written out, and against the axioms, exhaustively."""

from __future__ import annotations

from itertools import product

import coding_oracle
import pytest

from surecast.errors import ConfigurationError
from surecast.protocol.coding import POLYNOMIALS, field_of


@pytest.mark.parametrize("bits", [1, 4])
def test_the_axioms_hold_for_all_elements(bits: int) -> None:
    field = field_of(bits)
    times = field.multiply
    elements = range(field.order)
    for a, b in product(elements, repeat=2):
        assert 0 <= times(a, b) < field.order
        assert times(a, b) == times(b, a)
        assert (times(a, b) == 0) == (a == 0 or b == 0)
    for a, b, c in product(elements, repeat=3):
        assert times(times(a, b), c) == times(a, times(b, c))
        assert times(a, b ^ c) == times(a, b) ^ times(a, c)
    assert all(times(1, a) == a for a in elements)


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_every_product_is_that_of_polynomials(bits: int) -> None:
    field = field_of(bits)
    for a, b in product(range(field.order), repeat=2):
        assert field.multiply(a, b) == coding_oracle.multiply(a, b, bits)


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_every_element_but_zero_has_its_inverse(bits: int) -> None:
    field = field_of(bits)
    assert all(coding_oracle.multiply(a, field.inverse(a), bits) == 1 for a in range(1, field.order))
    with pytest.raises(ZeroDivisionError):
        field.inverse(0)


@pytest.mark.parametrize("bits", sorted(POLYNOMIALS))
def test_the_polynomials_are_primitive(bits: int) -> None:
    assert sorted(field_of(bits).powers.tolist()) == list(range(1, 1 << bits))


def test_other_fields_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="field_bits is 3; fields with 1, 4 and 8"):
        field_of(3)
