"""Causal attention over keys and values that lie in slots; __init__.py tells the layout."""

import numpy as np
from numba import prange

from kernels.compiled import Kernel, inlined
from kernels.exponential import exponential
from kernels.fours import load_four, store_four
from kernels.lanes import (
    WIDTH,
    Array,
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
    splat,
    store,
    sub,
    total,
)
from kernels.units import LEAST, UNIT

F = np.float32


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

    qkv [T, heads + 2 * kv_heads, dim]; cos, sin fp32 [T, dim / 2]; columns int64 [T, 2], slot and
    position; query fp32 [T, heads, dim]; sizes: heads, kv_heads, dim, capacity.
    """
    heads, kv_heads, dim, capacity = sizes[0], sizes[1], sizes[2], sizes[3]
    half = dim // 2
    scale = F(1.0) / F(np.sqrt(F(dim)))
    for t in prange(len(columns)):
        slot, position = columns[t, 0], columns[t, 1]
        source = t * (heads + 2 * kv_heads) * dim
        target = t * heads * dim
        for at in range(0, heads * dim, dim):
            for d in range(half):
                c, s = get(cos, t * half + d), get(sin, t * half + d)
                low, high = get(qkv, source + at + d), get(qkv, source + at + half + d)
                put(query, target + at + d, (low * c - high * s) * scale)
                put(query, target + at + half + d, (high * c + low * s) * scale)
        source += heads * dim
        unit, place = position // UNIT * UNIT, position % UNIT
        for head in range(kv_heads):
            base = (slot * kv_heads + head) * capacity
            key = (base + unit) * dim + place
            value = (base + position) * dim
            for d in range(half):
                c, s = get(cos, t * half + d), get(sin, t * half + d)
                low, high = get(qkv, source + d), get(qkv, source + half + d)
                put(keys, key + d * UNIT, low * c - high * s)
                put(keys, key + (half + d) * UNIT, high * c + low * s)
            for d in range(dim):
                put(values, value + d, get(qkv, source + kv_heads * dim + d))
            source += dim


@Kernel
def attend(
    query: Array, keys: Array, values: Array, blocks: Array, out: Array, sizes: Array
) -> None:
    """Writes out [T, heads, dim], the mean of the values that each query attends to.

    query fp32 [T, heads, dim]; blocks int64 [B, 4]: slot, first position, columns, and the first
    one's index in the pass; sizes as in `place`. A query's softmax runs along (Milakov and
    Gimelshein 2018): its state [dim + 2] is the weighted sum of the values so far, the largest
    score, and the sum of weights.
    """
    heads, kv_heads, dim, capacity = sizes[0], sizes[1], sizes[2], sizes[3]
    group = heads // kv_heads
    for task in prange(len(blocks) * kv_heads):
        block, head = task // kv_heads, task % kv_heads
        slot, start, columns, offset = blocks[block]
        count = columns * group
        base = (slot * kv_heads + head) * capacity * dim
        states = np.zeros((count + 1) * (dim + 2), F)  # one to spare, where the count is odd
        weights = np.empty(2 * UNIT, F)
        for n in range(count + 1):
            states[n * (dim + 2) + dim] = LEAST
        for unit in range(0, start + columns, UNIT):
            here = base + unit * dim
            for n in range(0, count, 2):  # two queries share each load of keys and values
                m = min(n + 1, count - 1)
                q = ((offset + n // group) * heads + head * group + n % group) * dim
                r = ((offset + m // group) * heads + head * group + m % group) * dim
                seen, more = start + n // group - unit + 1, start + m // group - unit + 1
                if more > 0:
                    state = n * (dim + 2)
                    _score(query, q, r, keys, here, dim, weights)
                    _weigh(weights, 0, seen, states, state, dim)
                    _weigh(weights, UNIT, more, states, state + dim + 2, dim)
                    _mix(weights, values, here, min(more, UNIT), states, state, dim)
        for n in range(count):
            q = ((offset + n // group) * heads + head * group + n % group) * dim
            state = n * (dim + 2)
            whole = splat(states[state + dim + 1])
            for d in range(0, dim, WIDTH):
                store(out, q + d, div(load(states, state + d), whole))


@inlined
def _score(query: Array, q: int, r: int, keys: Array, here: int, dim: int, weights: Array) -> None:
    """The products of two queries with a unit's keys [dim, UNIT]."""
    q0 = q1 = q2 = q3 = r0 = r1 = r2 = r3 = splat(F(0.0))
    for d in range(dim):
        a, b = splat(get(query, q + d)), splat(get(query, r + d))
        at = here + d * UNIT
        k0, k1, k2, k3 = load_four(keys, at)
        q0, q1, q2, q3 = fma(a, k0, q0), fma(a, k1, q1), fma(a, k2, q2), fma(a, k3, q3)
        r0, r1, r2, r3 = fma(b, k0, r0), fma(b, k1, r1), fma(b, k2, r2), fma(b, k3, r3)
    store_four(weights, 0, q0, q1, q2, q3)
    store_four(weights, UNIT, r0, r1, r2, r3)


@inlined
def _weigh(weights: Array, at: int, seen: int, states: Array, state: int, dim: int) -> None:
    """Scores to weights, 0 behind the first `seen`; what was summed so far is scaled to them."""
    least = splat(LEAST)
    w0, w1, w2, w3 = load_four(weights, at)
    w0, w1 = before(w0, seen, least), before(w1, seen - 16, least)
    w2, w3 = before(w2, seen - 32, least), before(w3, seen - 48, least)
    peak = states[state + dim]
    top = max(peak, largest(larger(larger(w0, w1), larger(w2, w3))))
    highest = splat(top)
    w0, w1 = exponential(sub(w0, highest)), exponential(sub(w1, highest))
    w2, w3 = exponential(sub(w2, highest)), exponential(sub(w3, highest))
    store_four(weights, at, w0, w1, w2, w3)
    if top > peak:
        shrink = exponential(splat(peak - top))
        for d in range(0, dim, WIDTH):
            store(states, state + d, mul(load(states, state + d), shrink))
        states[state + dim] = top
        states[state + dim + 1] *= first(shrink)
    states[state + dim + 1] += total(add(add(w0, w1), add(w2, w3)))


@inlined
def _mix(
    weights: Array, values: Array, here: int, seen: int, states: Array, state: int, dim: int
) -> None:
    """Adds a unit's values [UNIT, dim], weighted, to the sums of two queries."""
    other = state + dim + 2
    wide = dim // 64 * 64  # in fours; the rest in single lanes
    for d in range(0, wide, 64):
        x, y = state + d, other + d
        x0, x1, x2, x3 = load_four(states, x)
        y0, y1, y2, y3 = load_four(states, y)
        for t in range(seen):
            a, b = splat(weights[t]), splat(weights[UNIT + t])
            at = here + t * dim + d
            v0, v1, v2, v3 = load_four(values, at)
            x0, x1, x2, x3 = fma(a, v0, x0), fma(a, v1, x1), fma(a, v2, x2), fma(a, v3, x3)
            y0, y1, y2, y3 = fma(b, v0, y0), fma(b, v1, y1), fma(b, v2, y2), fma(b, v3, y3)
        store_four(states, x, x0, x1, x2, x3)
        store_four(states, y, y0, y1, y2, y3)
    for d in range(wide, dim, WIDTH):
        x0, y0 = load(states, state + d), load(states, other + d)
        for t in range(seen):
            v0 = load(values, here + t * dim + d)
            x0, y0 = fma(splat(weights[t]), v0, x0), fma(splat(weights[UNIT + t]), v0, y0)
        store(states, state + d, x0)
        store(states, other + d, y0)
