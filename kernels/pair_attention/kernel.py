"""Causal attention over pairs of bf16 numbers; the softmax is one of powers of 2, for which the
queries are scaled.
"""

import numpy as np
from numba import prange

from kernels.compiled import Kernel, inlined
from kernels.fours import dot_four, load_four, load_four_pairs, store_four
from kernels.lanes import (
    WIDTH,
    Array,
    Lanes,
    add,
    before,
    div,
    first,
    fma,
    get,
    larger,
    largest,
    load,
    mul,
    put,
    rounded,
    splat,
    store,
    sub,
    total,
)
from kernels.pairs import dot, load_pairs, splat_pair, store_rounded, times_power
from kernels.units import LEAST, UNIT

CHUNK = 4 * UNIT  # whose keys and values stay in the caches of a core while all queries pass
F = np.float32
LOG2_E = F(1.44269504)


@Kernel
def place(
    qkv: Array,
    cos: Array,
    sin: Array,
    columns: Array,
    query: Array,
    keys: Array,
    values: Array,
    sizes: Array,
) -> None:
    """Rotates queries and keys, scales queries; keys and values go to their slots.

    As in `kernels/attention`, but query is bf16, a unit's keys [dim / 2, UNIT, 2], values
    [UNIT / 2, dim, 2].
    """
    heads, kv_heads, dim, capacity = sizes[0], sizes[1], sizes[2], sizes[3]
    half = dim // 2
    scale = LOG2_E / F(np.sqrt(F(dim)))
    bits, keys_bits, values_bits = qkv.reshape(-1), keys.reshape(-1), values.reshape(-1)
    for t in prange(len(columns)):
        slot, position = columns[t, 0], columns[t, 1]
        source = t * (heads + 2 * kv_heads) * dim
        for head in range(heads):
            at = head * dim
            _rotate(qkv, source + at, cos, sin, t * half, half, scale, query, t * heads * dim + at)
        source += heads * dim
        turned = np.empty(dim, np.uint16)
        unit, place = position // UNIT * UNIT, position % UNIT
        for head in range(kv_heads):
            _rotate(qkv, source, cos, sin, t * half, half, F(1.0), turned, 0)
            base = ((slot * kv_heads + head) * capacity + unit) * dim
            key, value = base + 2 * place, base + place // 2 * 2 * dim + place % 2
            for d in range(half):
                keys_bits[key + d * 2 * UNIT] = turned[2 * d]
                keys_bits[key + d * 2 * UNIT + 1] = turned[2 * d + 1]
            for d in range(dim):
                values_bits[value + 2 * d] = bits[source + kv_heads * dim + d]
            source += dim


@inlined
def _rotate(
    x: Array, at: int, cos: Array, sin: Array, turn: int, half: int, scale: F, out: Array, to: int
) -> None:
    whole = half // WIDTH * WIDTH
    for d in range(0, whole, WIDTH):
        c, s = load(cos, turn + d), load(sin, turn + d)
        low, high = load(x, at + d), load(x, at + half + d)
        store_rounded(out, to + d, mul(sub(mul(low, c), mul(high, s)), splat(scale)))
        store_rounded(out, to + half + d, mul(add(mul(high, c), mul(low, s)), splat(scale)))
    for d in range(whole, half):
        c, s = get(cos, turn + d), get(sin, turn + d)
        low, high = get(x, at + d), get(x, at + half + d)
        put(out, to + d, (low * c - high * s) * scale)
        put(out, to + half + d, (high * c + low * s) * scale)


@Kernel
def attend(
    query: Array, keys: Array, values: Array, blocks: Array, out: Array, sizes: Array
) -> None:
    """Writes out [T, heads, dim], the mean of the values that each query attends to.

    As in `kernels/attention`, but four queries share each load, and a state is [dim + WIDTH + 1]:
    weighted sums, sums of weights in lanes, and the largest score.
    """
    heads, kv_heads, dim, capacity = sizes[0], sizes[1], sizes[2], sizes[3]
    group, size = heads // kv_heads, dim + WIDTH + 1
    for task in prange(len(blocks) * kv_heads):
        block, head = task // kv_heads, task % kv_heads
        slot, start, columns, offset = blocks[block]
        count = columns * group
        base = (slot * kv_heads + head) * capacity * dim
        states = np.zeros((count + 3) * size, F)  # three to spare, where the count is no four
        scores, weights = np.empty(4 * CHUNK, F), np.empty(4 * CHUNK, np.uint16)
        origin = (offset * heads + head * group) * dim
        for n in range(count + 3):
            states[(n + 1) * size - 1] = LEAST
        for chunk in range(0, start + columns, CHUNK):
            here = base + chunk * dim
            for n in range(0, count, 4):
                b, c, d = min(n + 1, count - 1), min(n + 2, count - 1), min(n + 3, count - 1)
                ahead = start - chunk + 1  # of the tokens in the chunk that the first column sees
                tokens = min(ahead + d // group, CHUNK)
                if tokens <= 0:
                    continue
                for unit in range(0, tokens, UNIT):
                    _score(
                        query,
                        origin + _place_of(n, group, heads, dim),
                        origin + _place_of(b, group, heads, dim),
                        origin + _place_of(c, group, heads, dim),
                        origin + _place_of(d, group, heads, dim),
                        keys,
                        here + unit * dim,
                        dim,
                        scores,
                        unit,
                    )
                state, scored = n * size, -(-tokens // UNIT) * UNIT
                for i in range(4):
                    seen = ahead + min(n + i, count - 1) // group
                    _weigh(scores, i * CHUNK, scored, seen, weights, states, state + i * size, dim)
                _mix(weights, values, here, tokens, states, state, size, dim)
        for n in range(count):
            state = n * size
            whole = splat(total(load(states, state + dim)))
            at = origin + _place_of(n, group, heads, dim)
            for d in range(0, dim, WIDTH):
                store_rounded(out, at + d, div(load(states, state + d), whole))


@inlined
def _place_of(n: int, group: int, heads: int, dim: int) -> int:
    """Of the query n of a key head, counted from its first one."""
    return (n // group * heads + n % group) * dim


@inlined
def _score(
    query: Array,
    a: int,
    b: int,
    c: int,
    d: int,
    keys: Array,
    here: int,
    dim: int,
    scores: Array,
    unit: int,
) -> None:
    """The products of four queries with a unit's keys."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(F(0.0))
    c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = splat(F(0.0))
    for i in range(0, dim, 2):
        at = here + i * UNIT
        k0, k1, k2, k3 = load_four_pairs(keys, at)
        a0, a1, a2, a3 = dot_four(a0, a1, a2, a3, splat_pair(query, a + i), k0, k1, k2, k3)
        b0, b1, b2, b3 = dot_four(b0, b1, b2, b3, splat_pair(query, b + i), k0, k1, k2, k3)
        c0, c1, c2, c3 = dot_four(c0, c1, c2, c3, splat_pair(query, c + i), k0, k1, k2, k3)
        d0, d1, d2, d3 = dot_four(d0, d1, d2, d3, splat_pair(query, d + i), k0, k1, k2, k3)
    store_four(scores, unit, a0, a1, a2, a3)
    store_four(scores, CHUNK + unit, b0, b1, b2, b3)
    store_four(scores, 2 * CHUNK + unit, c0, c1, c2, c3)
    store_four(scores, 3 * CHUNK + unit, d0, d1, d2, d3)


@inlined
def _weigh(
    scores: Array,
    at: int,
    scored: int,
    seen: int,
    weights: Array,
    states: Array,
    state: int,
    dim: int,
) -> None:
    """Scores to weights, 0 behind the first `seen`; what was summed so far is scaled to them."""
    least = splat(LEAST)
    for t in range(max(seen, 0) // WIDTH * WIDTH, scored, WIDTH):
        store(scores, at + t, before(load(scores, at + t), seen - t, least))
    h0 = h1 = h2 = h3 = least
    for t in range(0, scored, UNIT):
        s0, s1, s2, s3 = load_four(scores, at + t)
        h0, h1, h2, h3 = larger(h0, s0), larger(h1, s1), larger(h2, s2), larger(h3, s3)
    peak = states[state + dim + WIDTH]
    top = max(peak, largest(larger(larger(h0, h1), larger(h2, h3))))
    highest = splat(top)
    w0 = w1 = w2 = w3 = splat(F(0.0))
    for t in range(0, scored, UNIT):
        s0, s1, s2, s3 = load_four(scores, at + t)
        s0, s1 = _power(sub(s0, highest)), _power(sub(s1, highest))
        s2, s3 = _power(sub(s2, highest)), _power(sub(s3, highest))
        w0, w1, w2, w3 = add(w0, s0), add(w1, s1), add(w2, s2), add(w3, s3)
        store_rounded(weights, at + t, s0)
        store_rounded(weights, at + t + 16, s1)
        store_rounded(weights, at + t + 32, s2)
        store_rounded(weights, at + t + 48, s3)
    if top > peak:
        shrink = splat(first(_power(splat(peak - top))))
        for d in range(0, dim + WIDTH, WIDTH):
            store(states, state + d, mul(load(states, state + d), shrink))
        states[state + dim + WIDTH] = top
    summed = add(add(w0, w1), add(w2, w3))
    store(states, state + dim, add(load(states, state + dim), summed))


@inlined
def _power(x: Lanes) -> Lanes:
    """2 ** x with a relative error below 3e-6, of which a bf16 weight keeps nothing.

    A polynomial between -1/2 and 1/2, fitted to the least largest relative error, exact at 0.
    """
    whole = rounded(x)
    rest = sub(x, whole)
    p = fma(splat(F(9.582852e-3)), rest, splat(F(5.5906425e-2)))
    p = fma(p, rest, splat(F(0.24024099)))
    p = fma(p, rest, splat(F(0.69312419)))
    return times_power(fma(p, rest, splat(F(1.0))), whole)


@inlined
def _mix(
    weights: Array,
    values: Array,
    here: int,
    tokens: int,
    states: Array,
    state: int,
    size: int,
    dim: int,
) -> None:
    """Adds the chunk's first values, weighted, to the sums of four queries."""
    wide = dim // 64 * 64  # in fours; the rest in single lanes
    b, c, d = state + size, state + 2 * size, state + 3 * size
    for at in range(0, wide, 64):
        a0, a1, a2, a3 = load_four(states, state + at)
        b0, b1, b2, b3 = load_four(states, b + at)
        c0, c1, c2, c3 = load_four(states, c + at)
        d0, d1, d2, d3 = load_four(states, d + at)
        for t in range(0, tokens, 2):
            v0, v1, v2, v3 = load_four_pairs(values, here + t * dim + 2 * at)
            a0, a1, a2, a3 = dot_four(a0, a1, a2, a3, splat_pair(weights, t), v0, v1, v2, v3)
            x = splat_pair(weights, CHUNK + t)
            b0, b1, b2, b3 = dot_four(b0, b1, b2, b3, x, v0, v1, v2, v3)
            x = splat_pair(weights, 2 * CHUNK + t)
            c0, c1, c2, c3 = dot_four(c0, c1, c2, c3, x, v0, v1, v2, v3)
            x = splat_pair(weights, 3 * CHUNK + t)
            d0, d1, d2, d3 = dot_four(d0, d1, d2, d3, x, v0, v1, v2, v3)
        store_four(states, state + at, a0, a1, a2, a3)
        store_four(states, b + at, b0, b1, b2, b3)
        store_four(states, c + at, c0, c1, c2, c3)
        store_four(states, d + at, d0, d1, d2, d3)
    for at in range(wide, dim, WIDTH):
        a0, b0 = load(states, state + at), load(states, b + at)
        c0, d0 = load(states, c + at), load(states, d + at)
        for t in range(0, tokens, 2):
            v = load_pairs(values, here + t * dim + 2 * at)
            a0 = dot(a0, splat_pair(weights, t), v)
            b0 = dot(b0, splat_pair(weights, CHUNK + t), v)
            c0 = dot(c0, splat_pair(weights, 2 * CHUNK + t), v)
            d0 = dot(d0, splat_pair(weights, 3 * CHUNK + t), v)
        store(states, state + at, a0)
        store(states, b + at, b0)
        store(states, c + at, c0)
        store(states, d + at, d0)
