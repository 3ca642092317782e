"""Sixteen fp32 numbers side by side, for CPU kernels that numba compiles.

`Lanes` are vector registers: one of AVX-512, two of AVX2, four of NEON; LLVM splits them. Arrays
are C-contiguous, of float32, or of uint16 that hold the bits of bfloat16; an index counts numbers
from their start, and nothing checks it. Each function gives the same bits wherever it is used: only
`fma` fuses, and sums over lanes have a fixed order.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

WIDTH = 16

Array: TypeAlias = np.ndarray
Emit: TypeAlias = Callable[..., Any]  # of a builder and values of LLVM; writes instructions

FLOAT, INT, HALF = ir.FloatType(), ir.IntType(32), ir.IntType(16)
FLOATS, INTS, HALVES = (ir.VectorType(kind, WIDTH) for kind in (FLOAT, INT, HALF))
BYTES = ir.VectorType(ir.IntType(8), WIDTH)


class LanesType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)  # type: ignore[no-untyped-call]


LANES = LanesType()
Lanes: TypeAlias = Any  # in the kernels' signatures


def _of_one(result: Any, argument: Any, emit: Emit) -> Any:
    @intrinsic
    def operation(_: Any, a: Any) -> Any:
        return result(argument), lambda _c, builder, _s, values: emit(builder, *values)

    return operation


def _of_two(emit: Emit) -> Any:
    @intrinsic
    def operation(_: Any, a: Any, b: Any) -> Any:
        return LANES(LANES, LANES), lambda _c, builder, _s, values: emit(builder, *values)

    return operation


def _of_three(kinds: tuple[Any, Any, Any], emit: Emit) -> Any:
    @intrinsic
    def operation(_: Any, a: Any, b: Any, c: Any) -> Any:
        return LANES(*kinds), lambda _c, builder, _s, values: emit(builder, *values)

    return operation


def _call(name: str, kind: Any) -> Emit:
    """LLVM's own function `name` of arguments and a result of type `kind`."""

    def emit(builder: Any, *values: Any) -> Any:
        suffix = f"v{kind.count}f32"
        function = ir.FunctionType(kind, [kind] * len(values))
        insert: Any = cgutils.get_or_insert_function
        declared = insert(builder.module, function, f"{name}.{suffix}")
        return builder.call(declared, values)

    return emit


def _constants(value: int) -> Any:
    return ir.Constant(INTS, [value] * WIDTH)


def splatted(builder: Any, number: Any, kind: Any = FLOATS) -> Any:
    anything = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(anything, number, ir.Constant(INT, 0))
    return builder.shuffle_vector(first, anything, _constants(0))


def _folded(builder: Any, lanes: Any, join: Emit) -> Any:
    """Halves onto halves, until one number is left."""
    width = WIDTH
    while width > 1:
        width //= 2
        places = ir.VectorType(INT, width)
        low, high = (
            builder.shuffle_vector(lanes, lanes, ir.Constant(places, list(range(at, at + width))))
            for at in (0, width)
        )
        lanes = join(builder, low, high)
    return builder.extract_element(lanes, ir.Constant(INT, 0))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return _call("llvm.maxnum", a.type)(builder, a, b)


def _before(builder: Any, lanes: Any, count: Any, other: Any) -> Any:
    """The first `count` lanes, and `other` in place of the rest."""
    places = ir.Constant(INTS, list(range(WIDTH)))
    kept = builder.icmp_signed("<", places, splatted(builder, builder.trunc(count, INT), INTS))
    return builder.select(kept, lanes, other)


def _where_above(builder: Any, lanes: Any, limit: Any, kept: Any) -> Any:
    """`kept` where `lanes` exceed `limit`, and 0 elsewhere."""
    return builder.select(builder.fcmp_ordered(">", lanes, limit), kept, ir.Constant(FLOATS, None))


def _scaled(builder: Any, lanes: Any, powers: Any) -> Any:
    """lanes * 2 ** powers, within the normal range."""
    exponents = builder.shl(builder.fptosi(powers, INTS), _constants(23))
    return builder.bitcast(builder.add(builder.bitcast(lanes, INTS), exponents), FLOATS)


splat = _of_one(LANES, types.float32, splatted)
total = _of_one(types.float32, LANES, lambda b, v: _folded(b, v, lambda b, x, y: b.fadd(x, y)))
largest = _of_one(types.float32, LANES, lambda b, v: _folded(b, v, _larger))
first = _of_one(types.float32, LANES, lambda b, v: b.extract_element(v, ir.Constant(INT, 0)))
rounded = _of_one(LANES, LANES, _call("llvm.rint", FLOATS))
add = _of_two(lambda b, v, w: b.fadd(v, w))
sub = _of_two(lambda b, v, w: b.fsub(v, w))
mul = _of_two(lambda b, v, w: b.fmul(v, w))
div = _of_two(lambda b, v, w: b.fdiv(v, w))
larger = _of_two(_larger)
smaller = _of_two(_call("llvm.minnum", FLOATS))
scaled = _of_two(_scaled)
fma = _of_three((LANES,) * 3, _call("llvm.fma", FLOATS))  # a * b + c, rounded once
before = _of_three((LANES, types.intp, LANES), _before)
where_above = _of_three((LANES,) * 3, _where_above)


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def address(builder: Any, data: Any, index: Any, wanted: Any) -> Any:
    return builder.bitcast(builder.gep(data, [index]), wanted.as_pointer())


def _widened(builder: Any, bits: Any, count: int | None) -> Any:
    """bfloat16 is the upper half of a float32."""
    kind, numbers = (INT, FLOAT) if count is None else (INTS, FLOATS)
    shift = ir.Constant(INT, 16) if count is None else _constants(16)
    return builder.bitcast(builder.shl(builder.zext(bits, kind), shift), numbers)


def _narrowed(builder: Any, numbers: Any, count: int | None) -> Any:
    """The nearest bfloat16, of two the even one; finite numbers only."""
    kind, half = (INT, HALF) if count is None else (INTS, HALVES)

    def constant(value: int) -> Any:
        return ir.Constant(kind, value if count is None else [value] * WIDTH)

    bits = builder.bitcast(numbers, kind)
    odd = builder.and_(builder.lshr(bits, constant(16)), constant(1))
    up = builder.add(builder.add(bits, constant(0x7FFF)), odd)
    return builder.trunc(builder.lshr(up, constant(16)), half)


def _reading(result: Any, count: int | None) -> Any:
    @intrinsic
    def operation(_: Any, array: Any, index: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            data, at = data_of(context, builder, array, values[0]), values[1]
            if array.dtype == types.float32:
                wanted = FLOAT if count is None else FLOATS
                return builder.load(address(builder, data, at, wanted), align=4)
            wanted = HALF if count is None else HALVES
            bits = builder.load(address(builder, data, at, wanted), align=2)
            return _widened(builder, bits, count)

        return result(array, types.intp), code

    return operation


def _writing(argument: Any, count: int | None) -> Any:
    @intrinsic
    def operation(_: Any, array: Any, index: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            data = data_of(context, builder, array, values[0])
            at, numbers, align = values[1], values[2], 4
            if array.dtype != types.float32:
                numbers, align = _narrowed(builder, numbers, count), 2
            builder.store(numbers, address(builder, data, at, numbers.type), align=align)
            return context.get_dummy_value()

        return types.void(array, types.intp, argument), code

    return operation


def _writing_bytes() -> Any:
    @intrinsic
    def operation(_: Any, array: Any, index: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            data, at = data_of(context, builder, array, values[0]), values[1]
            numbers = builder.trunc(builder.fptosi(values[2], INTS), BYTES)
            builder.store(numbers, address(builder, data, at, BYTES), align=1)
            return context.get_dummy_value()

        return types.void(array, types.intp, LANES), code

    return operation


store_bytes = _writing_bytes()  # whole numbers from 0 to 255, into uint8, from an index on
load, store = _reading(LANES, WIDTH), _writing(LANES, WIDTH)  # from an index on
get, put = _reading(types.float32, None), _writing(types.float32, None)  # one number
