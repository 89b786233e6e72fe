"""The fields with 2, 16 and 256 elements whose symbols packets are made of.

An element is a number whose bits are the coefficients of a polynomial over GF(2). Addition is exclusive or;
multiplication is that of polynomials, reduced by a primitive polynomial:

| bits | polynomial | as a number |
|---|---|---|
| 1 | x + 1 | 0x3 |
| 4 | x^4 + x + 1 | 0x13 |
| 8 | x^8 + x^4 + x^3 + x^2 + 1 | 0x11d |

>>> field = field_of(8)
>>> hex(field.multiply(0x80, 2)), field.multiply(7, field.inverse(7))
('0x1d', 1)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError

__all__ = ["POLYNOMIALS", "Bytes", "Field", "Words", "field_of"]

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

POLYNOMIALS = {1: 0x3, 4: 0x13, 8: 0x11D}
"""By bits. Each is primitive: the powers of x (of 1 in the smallest field) run through all elements but 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field with 2^bits elements; `powers` and `logarithms` are its tables to the base x."""

    bits: int
    polynomial: int
    powers: Bytes
    logarithms: NDArray[np.int64]
    inverses: Bytes = field(init=False)
    """The inverse of each element; that of 0, which has none, is 0."""

    def __post_init__(self) -> None:
        inverses = np.zeros(self.order, dtype=np.uint8)
        inverses[1:] = self.powers[(-self.logarithms[1:]) % (self.order - 1)]
        object.__setattr__(self, "inverses", inverses)

    @property
    def order(self) -> int:
        """The number of elements."""
        return 1 << self.bits

    def multiply(self, left: int, right: int) -> int:
        """The product of two elements.

        >>> field_of(4).multiply(8, 2)
        3
        """
        if left == 0 or right == 0:
            return 0
        return int(self.powers[(self.logarithms[left] + self.logarithms[right]) % (self.order - 1)])

    def inverse(self, element: int) -> int:
        """Returns the multiplicative inverse of an element.

        >>> field_of(4).inverse(2)
        9
        """
        if element == 0:
            raise ZeroDivisionError("0 has no inverse in a field")
        return int(self.inverses[element])


@cache
def field_of(bits: int) -> Field:
    """The field with 2^bits elements, for 1, 4 or 8 bits.

    >>> field_of(4).order
    16
    """
    if bits not in POLYNOMIALS:
        raise ConfigurationError(f"field_bits is {bits}; fields with 1, 4 and 8 bits a symbol are supported")
    polynomial, order = POLYNOMIALS[bits], 1 << bits
    powers = np.zeros(order - 1, dtype=np.uint8)
    logarithms = np.zeros(order, dtype=np.int64)
    element = 1
    for exponent in range(order - 1):
        powers[exponent] = element
        logarithms[element] = exponent
        element <<= 1
        if element & order:
            element ^= polynomial
    return Field(bits, polynomial, powers, logarithms)
