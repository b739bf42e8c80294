"""The vector part of the scan: distances of 64 items at a time, by byte shuffles.

numba has no byte shuffle, so this file writes the few instructions as LLVM code: a table of 16
bytes per half byte of the code is looked up for 32 items in one instruction, and the sums stay in
registers. It is portable LLVM: x86 with AVX2 or SSSE3 and Arm each get their own shuffle.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from coldhash.arrays.compiled import repeat
from coldhash.search.index import GROUP

_HOST = get_host_cpu_features()
UNIT = 64 if _HOST.get("avx512vbmi") else 32 if _HOST.get("avx2") else 16  # lanes of an operation
COUNTS_BITS = bool(_HOST.get("avx512bitalg") or _HOST.get("neon"))  # of each byte, by instruction


def _lookup(builder, table, index):
    """Return table[index] per lane: LLVM turns this pattern into one byte shuffle (x86, Arm)."""
    word = ir.IntType(32)
    repeat = ir.Constant(ir.VectorType(word, UNIT), [lane % 16 for lane in range(UNIT)])
    table = builder.shuffle_vector(table, ir.Constant(table.type, ir.Undefined), repeat)
    out = ir.Constant(index.type, ir.Undefined)
    for lane in range(UNIT):
        at = ir.Constant(word, lane)
        entry = builder.zext(builder.extract_element(index, at), word)
        out = builder.insert_element(out, builder.extract_element(table, entry), at)
    return out


def _differing_bits(builder, codes, own):
    """Return in how many bits each byte differs from one byte."""
    form = ir.FunctionType(codes.type, [codes.type])
    count = builder.module.declare_intrinsic(f"llvm.ctpop.v{UNIT}i8", (), form)
    return builder.call(count, [builder.xor(codes, repeat(builder, own, UNIT))])


def _splat(vector, value):
    return ir.Constant(vector, [value] * vector.count)


def _load(builder, base, offset, vector):
    place = builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())
    return builder.load(place, align=1)


def _emit_sums(context, builder, forms, args, tile, narrow):
    """Write the code of sum_lanes: a loop over bytes of codes, sums in registers."""
    stripes, rounded, limits, out, hits = (
        context.make_array(forms[i])(context, builder, args[i]) for i in (0, 2, 4, 5, 6)
    )
    group, first = args[1], args[3]
    n_bytes = cgutils.unpack_tuple(builder, stripes.shape)[1]
    word, byte = n_bytes.type, ir.IntType(8)
    row, table = ir.VectorType(byte, UNIT), ir.VectorType(byte, 16)
    total = ir.VectorType(ir.IntType(8 if narrow else 16), UNIT)
    shape = [(query, unit) for query in range(tile) for unit in range(GROUP // UNIT)]
    sums = {at: cgutils.alloca_once_value(builder, _splat(total, 0)) for at in shape}

    size = builder.mul(n_bytes, word(32))  # of the tables of a query: two of 16 bytes a byte
    codes = builder.gep(stripes.data, [builder.mul(builder.mul(group, n_bytes), word(GROUP))])
    tables = [builder.mul(builder.add(first, word(query)), size) for query in range(tile)]
    with cgutils.for_range(builder, n_bytes) as loop:
        at = builder.mul(loop.index, word(GROUP))
        rows = [_load(builder, codes, builder.add(at, word(i)), row) for i in range(0, GROUP, UNIT)]
        low = [builder.and_(code, _splat(row, 15)) for code in rows]
        high = [builder.lshr(code, _splat(row, 4)) for code in rows]
        for query, unit in shape:
            if narrow and COUNTS_BITS:
                at = builder.add(tables[query], loop.index)
                own = builder.load(builder.gep(rounded.data, [at]))
                added = _differing_bits(builder, rows[unit], own)
            else:
                at = builder.add(tables[query], builder.mul(loop.index, word(32)))
                left = _lookup(builder, _load(builder, rounded.data, at, table), low[unit])
                at = builder.add(at, word(16))
                right = _lookup(builder, _load(builder, rounded.data, at, table), high[unit])
                added = builder.add(left, right)
            added, place = added if narrow else builder.zext(added, total), sums[query, unit]
            builder.store(builder.add(builder.load(place), added), place)
    return _emit_hits(builder, sums, tile, limits.data, out.data, hits.data)


def _emit_hits(builder, sums, tile, limits, out, hits):
    """Write the code that stores sums and masks of lanes below the limits; return any hits."""
    word, wide = ir.IntType(64), ir.VectorType(ir.IntType(16), UNIT)
    masks = [word(0)] * tile
    for (query, unit), place in sums.items():
        value = builder.load(place)
        target = builder.gep(out, [word(query * GROUP + unit * UNIT)])
        stored = value if value.type == wide else builder.zext(value, wide)
        builder.store(stored, builder.bitcast(target, wide.as_pointer()), align=1)
        limit = builder.load(builder.gep(limits, [word(query)]))
        limit = repeat(builder, builder.trunc(limit, value.type.element), UNIT)
        below = builder.bitcast(builder.icmp_unsigned("<", value, limit), ir.IntType(UNIT))
        part = below if UNIT == GROUP else builder.zext(below, word)
        part = builder.shl(part, word(unit * UNIT))
        masks[query] = builder.or_(masks[query], part)
    for query, mask in enumerate(masks):
        builder.store(mask, builder.gep(hits, [word(query)]))
    return functools.reduce(builder.or_, masks)


@intrinsic(prefer_literal=True)
def sum_lanes(typingctx, tile, n_sum_bytes, stripes, group, rounded, first, limits, out, hits):
    """Compute the distances of the 64 items of a group to `tile` queries from query `first` on.

    Fills out[query, lane], in 8 or 16 bits (`n_sum_bytes`, a literal as `tile` is), and hits[query]
    (mask of lanes below limits[query]); returns any hits.
    """
    arguments = (stripes, types.intp, rounded, types.intp, limits, out, hits)

    def codegen(context, builder, sig, args):
        narrow = n_sum_bytes.literal_value == 1
        return _emit_sums(context, builder, sig.args[2:], args[2:], tile.literal_value, narrow)

    return types.uint64(tile, n_sum_bytes, *arguments), codegen


@intrinsic
def lowest_bit(typingctx, mask):
    """Return the index of the lowest set bit of a non-zero mask."""

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), codegen


@intrinsic
def allocate(typingctx, forms):
    """Return arrays of some forms, (type, size of each axis), that share one piece of memory.

    Code compiled without counts of references, which take longer than to scan a small catalogue,
    can use no others; `release(first.ctypes)` frees them.
    """
    arrays = [types.Array(form[0].dtype, len(form) - 1, "C") for form in forms]

    def codegen(context, builder, sig, args):
        word, parts = ir.IntType(64), []
        end = word(0)
        for array, form in zip(arrays, cgutils.unpack_tuple(builder, args[0]), strict=True):
            shape = cgutils.unpack_tuple(builder, form)[1:]
            strides = [word(context.get_abi_sizeof(context.get_data_type(array.dtype)))]
            for size in reversed(shape):
                strides.insert(0, builder.mul(strides[0], size))
            parts.append((array, end, shape, strides))
            end = builder.and_(builder.add(builder.add(end, strides[0]), word(63)), word(-64))
        form = ir.FunctionType(cgutils.voidptr_t, [word])
        memory = builder.call(cgutils.get_or_insert_function(builder.module, form, "malloc"), [end])
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, memory)):
            context.call_conv.return_user_exc(builder, MemoryError, ("a search",))
        made = []
        for array, start, shape, strides in parts:
            out = context.make_array(array)(context, builder)
            place = builder.bitcast(builder.gep(memory, [start]), out.data.type)
            populate_array(out, place, shape, strides[1:], strides[-1], None)
            made.append(out._getvalue())
        return context.make_tuple(builder, sig.return_type, made)

    return types.Tuple(arrays)(forms), codegen


release = types.ExternalFunction("free", types.void(types.voidptr))
