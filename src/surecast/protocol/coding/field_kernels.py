"""Compiled field arithmetic on whole payloads and on encoding vectors.

Payloads are rows of 64-bit words with the symbols packed (8, 16 or 64 in a word). A combination of rows goes bit by bit
of the coefficients: the rows whose coefficient has the bit are added, and the sum is multiplied by x on the way to the
next lower bit. So a product costs half an exclusive or for each bit of a symbol, on words that the compiler puts into
vector registers, and no table is looked up.

Encoding vectors hold one coefficient a byte, whatever the field, and are padded to whole words; their matrices come
twice, as bytes and as words of the same memory.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from surecast.kernels import njit

__all__ = ["back_substitute", "combine", "draw", "insert", "insert_many", "learn", "recode", "recode_many", "solve"]

_LOW_OF_BYTES = np.uint64(0x0101010101010101)
_LOW_OF_NIBBLES = np.uint64(0x1111111111111111)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True)
def _times_x(words, bits):
    """Every symbol of a row multiplied by x, in place; the constants are the polynomials less their highest term."""
    if bits == 8:
        for w in range(words.shape[0]):
            high = (words[w] >> np.uint64(7)) & _LOW_OF_BYTES
            rest = (words[w] ^ (high << np.uint64(7))) << np.uint64(1)
            words[w] = rest ^ high ^ (high << np.uint64(2)) ^ (high << np.uint64(3)) ^ (high << np.uint64(4))
    else:
        for w in range(words.shape[0]):
            high = (words[w] >> np.uint64(3)) & _LOW_OF_NIBBLES
            rest = (words[w] ^ (high << np.uint64(3))) << np.uint64(1)
            words[w] = rest ^ high ^ (high << np.uint64(1))


@njit(cache=True)
def _add_rows(total, rows, chosen, count):
    """Adds the chosen rows, eight in a pass: the total is then read and written once for eight of them."""
    i = 0
    while i + 8 <= count:
        a, b, c, d = rows[chosen[i]], rows[chosen[i + 1]], rows[chosen[i + 2]], rows[chosen[i + 3]]
        e, f, g, h = rows[chosen[i + 4]], rows[chosen[i + 5]], rows[chosen[i + 6]], rows[chosen[i + 7]]
        for w in range(total.shape[0]):
            total[w] ^= a[w] ^ b[w] ^ c[w] ^ d[w] ^ e[w] ^ f[w] ^ g[w] ^ h[w]
        i += 8
    if i + 4 <= count:
        a, b, c, d = rows[chosen[i]], rows[chosen[i + 1]], rows[chosen[i + 2]], rows[chosen[i + 3]]
        for w in range(total.shape[0]):
            total[w] ^= a[w] ^ b[w] ^ c[w] ^ d[w]
        i += 4
    while i < count:
        a = rows[chosen[i]]
        for w in range(total.shape[0]):
            total[w] ^= a[w]
        i += 1


@njit(cache=True)
def _mix(total, factors, rows, more_factors, more_rows, bits, chosen):
    """The combination of rows and of more rows."""
    total[:] = np.uint64(0)
    for bit in range(bits - 1, -1, -1):
        if bit < bits - 1:
            _times_x(total, bits)
        count = 0
        for j in range(rows.shape[0]):
            chosen[count] = j
            count += (factors[j] >> bit) & 1
        _add_rows(total, rows, chosen, count)
        count = 0
        for j in range(more_rows.shape[0]):
            chosen[count] = j
            count += (more_factors[j] >> bit) & 1
        _add_rows(total, more_rows, chosen, count)


@njit(cache=True)
def combine(coefficients, rows, bits, out):
    """The matrix product of coefficients (one a byte) and rows of packed symbols."""
    chosen = np.empty(rows.shape[0] + 1, np.int64)
    for o in range(coefficients.shape[0]):
        _mix(out[o], coefficients[o], rows, coefficients[o], rows[:0], bits, chosen)


@njit(cache=True)
def _next_multiple(multiple, bits):
    """A scalar multiplied by x."""
    if bits == 8:
        return ((multiple << np.uint64(1)) & np.uint64(0xFF)) ^ (np.uint64(0x1D) * (multiple >> np.uint64(7)))
    return ((multiple << np.uint64(1)) & np.uint64(0xF)) ^ (np.uint64(0x3) * (multiple >> np.uint64(3)))


@njit(cache=True)
def _add_multiple(target, source, factor, width, bits):
    """Adds a multiple of one vector to another. The zeros and ones that a bit leaves in the bytes of a word are
    multiplied by the factor times the bit's power of x: no byte overflows into the next."""
    if factor == 0:
        return
    if factor == 1:
        for w in range(width):
            target[w] ^= source[w]
        return
    m0 = np.uint64(factor)
    m1 = _next_multiple(m0, bits)
    m2 = _next_multiple(m1, bits)
    m3 = _next_multiple(m2, bits)
    if bits == 4:
        for w in range(width):
            v = source[w]
            low = ((v & _LOW_OF_BYTES) * m0) ^ (((v >> np.uint64(1)) & _LOW_OF_BYTES) * m1)
            high = (((v >> np.uint64(2)) & _LOW_OF_BYTES) * m2) ^ (((v >> np.uint64(3)) & _LOW_OF_BYTES) * m3)
            target[w] ^= low ^ high
        return
    m4 = _next_multiple(m3, bits)
    m5 = _next_multiple(m4, bits)
    m6 = _next_multiple(m5, bits)
    m7 = _next_multiple(m6, bits)
    for w in range(width):
        v = source[w]
        low = ((v & _LOW_OF_BYTES) * m0) ^ (((v >> np.uint64(1)) & _LOW_OF_BYTES) * m1)
        low ^= (((v >> np.uint64(2)) & _LOW_OF_BYTES) * m2) ^ (((v >> np.uint64(3)) & _LOW_OF_BYTES) * m3)
        high = (((v >> np.uint64(4)) & _LOW_OF_BYTES) * m4) ^ (((v >> np.uint64(5)) & _LOW_OF_BYTES) * m5)
        high ^= (((v >> np.uint64(6)) & _LOW_OF_BYTES) * m6) ^ (((v >> np.uint64(7)) & _LOW_OF_BYTES) * m7)
        target[w] ^= low ^ high


@njit(cache=True)
def insert(matrix, words, pivots, known, row, width, bits, inverses):
    """Reduces a row by the others and gives it a pivot of its own: its column, or -1 where nothing new is left.

    `pivots` has the row of each column, or -1. Known columns are constants: they are carried along, not eliminated.
    A row with a pivot is 1 there and 0 in all unknown columns before it, so the matrix is triangular.
    `width` words of a row are in use.
    """
    for column in range(pivots.shape[0]):
        factor = matrix[row, column]
        if factor == 0 or known[column]:
            continue
        other = pivots[column]
        if other < 0:
            # The row times (1/factor) is the row plus (1/factor - 1) times the row.
            _add_multiple(words[row], words[row], inverses[factor] ^ 1, width, bits)
            pivots[column] = row
            return column
        _add_multiple(words[row], words[other], factor, width, bits)
    return -1


@njit(cache=True)
def learn(matrix, words, pivots, known, column, width, bits, inverses):
    """Takes note that a plain packet is known; whether that is new. The row that had its column looks for another."""
    if known[column]:
        return False
    known[column] = True
    row = pivots[column]
    if row < 0:
        return True
    pivots[column] = -1
    return insert(matrix, words, pivots, known, row, width, bits, inverses) >= 0


@njit(cache=True)
def back_substitute(matrix, words, pivots, known, width, bits, solved):
    """Clears what is above each pivot and marks in `solved` the columns whose row has no other unknown; their number.

    A row above has its pivot in an earlier column, so going from the last column back clears each entry once.
    """
    columns = pivots.shape[0]
    for column in range(columns - 1, -1, -1):
        row = pivots[column]
        if row < 0:
            continue
        for earlier in range(column):
            other = pivots[earlier]
            if other >= 0 and matrix[other, column] != 0:
                _add_multiple(words[other], words[row], matrix[other, column], width, bits)
    count = 0
    for column in range(columns):
        row = pivots[column]
        solved[column] = row >= 0
        if row < 0:
            continue
        for later in range(column + 1, columns):
            if matrix[row, later] != 0 and not known[later]:
                solved[column] = False
                break
        count += solved[column]
    return count


@njit(cache=True)
def solve(matrix, words, pivots, known, width, bits, plain, payloads):
    """Computes every plain packet that is determined, and takes it as known.

    `matrix` has the encoding vectors, padded to whole words, and behind them which `payloads` each row is made of.
    """
    columns = pivots.shape[0]
    behind = (columns + 7) // 8 * 8
    solved = np.empty(columns, np.bool_)
    if back_substitute(matrix, words, pivots, known, width, bits, solved) == 0:
        return
    chosen = np.empty(columns + 1, np.int64)
    factors = np.empty(columns, np.uint8)
    for column in range(columns):
        if solved[column]:
            row = pivots[column]
            for j in range(columns):
                factors[j] = matrix[row, j] if known[j] else 0
            _mix(plain[column], factors, plain, matrix[row, behind:], payloads, bits, chosen)
    for column in range(columns):
        if solved[column]:
            known[column] = True
            pivots[column] = -1


@njit(cache=True)
def draw(seed, bits, out):
    """Fills `out` with elements drawn uniformly, and says whether they are not all 0.

    It has no state: a counter runs from the seed on and is mixed as in SplitMix64.
    """
    seen = np.uint64(0)
    word = np.uint64(0)
    counter = np.uint64(seed)
    left = 0
    mask = np.uint64((1 << bits) - 1)
    for i in range(out.shape[0]):
        if left == 0:
            counter += _GOLDEN
            word = (counter ^ (counter >> np.uint64(30))) * _MIX_1
            word = (word ^ (word >> np.uint64(27))) * _MIX_2
            word ^= word >> np.uint64(31)
            left = 64 // bits
        out[i] = word & mask
        seen |= word & mask
        word >>= np.uint64(bits)
        left -= 1
    return seen != 0


@njit(cache=True)
def recode(known, plain, vectors, payloads, seed, bits, vector, out):
    """Writes a random combination of the known plain packets and of the coded ones, as vector and payload.

    In place of 0, which is of no use, it writes the first packet there is.
    """
    columns = known.shape[0]
    coded = payloads.shape[0]
    chosen = np.empty(max(columns, coded) + 1, np.int64)
    factors = np.empty(columns + coded, np.uint8)
    draw(seed, bits, factors)
    first = columns
    for column in range(columns - 1, -1, -1):
        if known[column]:
            first = column
        else:
            factors[column] = 0
    words = vector.view(np.uint64)
    # Vectors hold one symbol a byte: for the smaller fields that is a packed row whose other symbols are 0.
    _mix(words, factors[columns:], vectors, factors, vectors[:0], bits, chosen)
    for column in range(columns):
        vector[column] ^= factors[column]
    if not np.any(vector):
        factors[:] = 0
        factors[first] = 1
        if first < columns:
            vector[first] = 1
        else:
            words[:] = vectors[0]
    _mix(out, factors, plain, factors[columns:], payloads, bits, chosen)


@njit(cache=True)
def insert_many(matrix, words, pivots, known, used, ranks, nodes, vectors, bits, inverses, innovative):
    """Gives vector i to node `nodes[i]`, in order: as `insert` and `learn`, for many nodes and without payloads."""
    columns = pivots.shape[1]
    width = words.shape[2]
    for i in range(nodes.shape[0]):
        node = nodes[i]
        innovative[i] = False
        if ranks[node] == columns:
            continue
        filled = 0
        last = 0
        for column in range(columns):
            if vectors[i, column] != 0:
                filled += 1
                last = column
        if filled == 1:
            innovative[i] = learn(matrix[node], words[node], pivots[node], known[node], last, width, bits, inverses)
        elif filled > 1:
            row = used[node]
            matrix[node, row, :columns] = vectors[i]
            innovative[i] = (
                insert(matrix[node], words[node], pivots[node], known[node], row, width, bits, inverses) >= 0
            )
            used[node] += innovative[i]
        ranks[node] += innovative[i]


@njit(cache=True)
def recode_many(matrix, words, pivots, known, nodes, seeds, bits, out, out_words):
    """Writes for each node a random combination of what it has. In place of 0, which is of no use, it writes what has
    the first column; it leaves 0 only where a node has nothing."""
    columns = pivots.shape[1]
    width = words.shape[2]
    factors = np.empty(2 * columns, np.uint8)
    for i in range(nodes.shape[0]):
        node = nodes[i]
        draw(seeds[i], bits, factors)
        out_words[i, :] = np.uint64(0)
        for column in range(columns):
            row = pivots[node, column]
            if row >= 0 and factors[column] != 0:
                _add_multiple(out_words[i], words[node, row], factors[column], width, bits)
        for column in range(columns):
            if known[node, column]:
                out[i, column] ^= factors[columns + column]
        if np.any(out_words[i]):
            continue
        for column in range(columns):
            if known[node, column]:
                out[i, column] = 1
                break
            if pivots[node, column] >= 0:
                out_words[i, :] = words[node, pivots[node, column]]
                break
