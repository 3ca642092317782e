"""Pairs of bfloat16 numbers and their dot products, for CPUs that have them in hardware.

`Pairs` are sixteen pairs in one register of AVX-512. `dot` is the instruction VDPBF16PS: exact
products, sums in fp32 rounded to nearest even, denormal numbers taken for 0.
"""

from functools import cache
from typing import Any, TypeAlias

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from kernels.lanes import FLOATS, HALVES, LANES, address, data_of, splatted

INT = ir.IntType(32)
PAIRS_CODE = ir.VectorType(INT, 16)

llvm.initialize_native_asmparser()  # `dot` is written as an instruction


class PairsType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Pairs")


@register_model(PairsType)
class _PairsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, PAIRS_CODE)  # type: ignore[no-untyped-call]


PAIRS = PairsType()
Pairs: TypeAlias = Any  # in the kernels' signatures


@cache
def are_there() -> bool:
    """Whether this CPU has the instruction."""
    return bool(llvm.get_host_cpu_features().get("avx512bf16"))


def _load_pairs(_: Any, array: Any, index: Any) -> Any:
    """32 numbers from `index` on."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, array, values[0])
        return builder.load(address(builder, data, values[1], PAIRS_CODE), align=2)

    return PAIRS(array, types.intp), code


def _splat_pair(_: Any, array: Any, index: Any) -> Any:
    """The two numbers from `index` on, sixteen times."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, array, values[0])
        pair = builder.load(address(builder, data, values[1], INT), align=2)
        return splatted(builder, pair, PAIRS_CODE)

    return PAIRS(array, types.intp), code


def _dot(_: Any, sums: Any, a: Any, b: Any) -> Any:
    """Each of the sixteen sums, and the products of its two pairs."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(FLOATS, [FLOATS, PAIRS_CODE, PAIRS_CODE])
        return builder.asm(kind, "vdpbf16ps $3, $2, $0", "=v,0,v,v", list(values), False)

    return LANES(LANES, PAIRS, PAIRS), code


def _store_rounded(_: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Into float32 as they are, else as bfloat16: VCVTNEPS2BF16, the nearest, of two the even."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, array, values[0])
        numbers, align = values[2], 4
        if array.dtype != types.float32:
            kind = ir.FunctionType(HALVES, [FLOATS])
            numbers = builder.asm(kind, "vcvtneps2bf16 $1, $0", "=v,v", [numbers], False)
            align = 2
        builder.store(numbers, address(builder, data, values[1], numbers.type), align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, LANES), code


def _times_power(_: Any, lanes: Any, powers: Any) -> Any:
    """lanes * 2 ** powers, of whole powers: VSCALEFPS, 0 where that is too small for fp32."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(FLOATS, [FLOATS, FLOATS])
        return builder.asm(kind, "vscalefps $2, $1, $0", "=v,v,v", list(values), False)

    return LANES(LANES, LANES), code


def _fetch(_: Any, array: Any, index: Any) -> Any:
    """Asks for what lies at `index`, which may be outside the array, for later: PREFETCHT0."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = data_of(context, builder, array, values[0])
        here = builder.gep(data, [values[1]])
        kind = ir.FunctionType(ir.VoidType(), [here.type])
        builder.asm(kind, "prefetcht0 ($0)", "r", [here], True)
        return context.get_dummy_value()

    return types.void(array, types.intp), code


load_pairs: Any = intrinsic(_load_pairs)
splat_pair: Any = intrinsic(_splat_pair)
dot: Any = intrinsic(_dot)
fetch: Any = intrinsic(_fetch)
store_rounded: Any = intrinsic(_store_rounded)
times_power: Any = intrinsic(_times_power)
