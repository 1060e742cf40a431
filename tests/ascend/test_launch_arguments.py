"""The bytes of a launch's arguments, by both conventions."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.ir.types import DTYPES, DType, bf16, f16, f32, i8, i32, u8
from terrazzo.targets.ascend.arguments import (
    ADDRESS,
    GRID,
    LOCK,
    SYNC,
    WORKSPACE,
    Convention,
    Field,
    Kind,
    Parameter,
    layout,
    pack,
)

A, B = 0x1122334455667788, 0xA1A2A3A4A5A6A7A8
WIDE = {"i64": DType("i64", 64, "int"), "u64": ADDRESS}


def tensor(name: str, dtype: DType = f32) -> Parameter:
    return Parameter(name, dtype, (4,))


def test_triton_convention_byte_by_byte() -> None:
    """As a C struct: three addresses, the kernel's own, three extents; padded to 8 bytes."""
    own = [Parameter("eps", f32), tensor("x"), Parameter("h", f16), Parameter("b", i8), tensor("y")]
    fields, size = layout("triton", "aiv", own, workspace=False)
    values = {SYNC: 1, LOCK: 2, WORKSPACE: 3, "eps": 1.5, "x": A, "h": 0.5, "b": -2, "y": B}
    got = pack(fields, size, {**values, **dict(zip(GRID, (24, 1, 1), strict=True))})
    want = struct.pack("<QQQ f4x Q H2x b3x Q iii 4x", 1, 2, 3, 1.5, A, 0x3800, -2, B, 24, 1, 1)
    assert got == want and size == 72


@pytest.mark.parametrize(
    ("kind", "workspace", "sync", "front"),
    [
        ("aiv", False, True, []),
        ("aic", False, True, []),
        ("aiv", True, True, [WORKSPACE]),
        ("mix", True, True, [SYNC, WORKSPACE]),
        ("mix", False, True, [SYNC]),
        ("mix", True, False, [WORKSPACE]),
    ],
)
def test_written_convention(kind: Kind, workspace: bool, sync: bool, front: list[str]) -> None:
    """The address for signals first, for mixed kernels, then the workspace, then what is written;
    no grid."""
    own = [tensor("a", f16), Parameter("scale", f32), tensor("out", f16)]
    fields, size = layout("written", kind, own, workspace=workspace, sync=sync)
    assert [f.name for f in fields] == [*front, "a", "scale", "out"]
    at = 8 * len(front)
    assert [f.offset for f in fields] == [*range(0, at, 8), at, at + 8, at + 16]
    assert size == at + 24


def test_no_arguments_are_no_bytes() -> None:
    fields, size = layout("written", "aiv", [], workspace=False)
    assert (fields, size) == ((), 0) and pack(fields, size, {}) == b""


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OverflowError):
        pack([Field("n", u8, 0)], 8, {"n": 256})
    with pytest.raises(OverflowError):
        pack([Field("n", i32, 0)], 8, {"n": 1 << 31})


parameters = st.lists(
    st.one_of(st.just("tensor"), st.sampled_from([*DTYPES, *WIDE])), min_size=0, max_size=12
).map(
    lambda kinds: [
        tensor(f"p{n}") if k == "tensor" else Parameter(f"p{n}", (DTYPES | WIDE)[k])
        for n, k in enumerate(kinds)
    ]
)
conventions = st.sampled_from(["written", "triton"])
kinds = st.sampled_from(["aiv", "aic", "mix"])


@given(parameters, conventions, kinds, st.booleans(), st.data())
def test_any_mix_reads_back(
    own: list[Parameter], convention: Convention, kind: Kind, workspace: bool, data: st.DataObject
) -> None:
    fields, size = layout(convention, kind, own, workspace=workspace)
    end = 0
    for f in fields:
        assert f.offset % (8 if f.dtype.bits == 64 else 4) == 0
        assert end <= f.offset < end + 8  # in order, apart, no more gap than alignment asks for
        end = f.offset + f.dtype.bits // 8
    assert end <= size < end + 8 and size % 8 == 0
    assert [f.name for f in fields if not f.name.startswith("<")] == [p.name for p in own]

    values: dict[str, int | float] = {}
    for f in fields:
        if f.dtype.kind == "float":
            values[f.name] = data.draw(st.sampled_from([0.0, -1.5, 96.0]))
        else:
            bits = 1 if f.dtype.kind == "bool" else f.dtype.bits
            low = -(1 << bits - 1) if f.dtype.kind == "int" else 0
            values[f.name] = data.draw(st.integers(low, low + (1 << bits) - 1))
    raw, used = pack(fields, size, values), np.zeros(size, bool)
    for f in fields:
        count = f.dtype.bits // 8
        piece = raw[f.offset : f.offset + count]
        if f.dtype.kind == "float":
            assert np.frombuffer(piece, f.dtype.numpy)[0] == values[f.name]
        else:
            assert int.from_bytes(piece, "little", signed=f.dtype.kind == "int") == values[f.name]
        used[f.offset : f.offset + count] = True
    assert not np.frombuffer(raw, np.uint8)[~used].any()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to ask")
def test_triton_convention_is_what_a_c_compiler_makes_of_it(tmp_path: Path) -> None:
    """A packed struct whose members carry the alignments, as a C stub would declare it."""
    rng, cases = np.random.default_rng(0), []
    spelt = {
        "i8": "int8_t",
        "f16": "uint16_t",
        "bf16": "uint16_t",
        "f32": "float",
        "i32": "int32_t",
    }
    for _ in range(20):
        names = rng.choice([*spelt, "tensor"], int(rng.integers(0, 8)))
        cases.append([str(n) for n in names])
    lines = ["#include <stddef.h>", "#include <stdint.h>", "#include <stdio.h>", "int main(void) {"]
    want = []
    for c in cases:
        own = [
            tensor(f"p{n}") if k == "tensor" else Parameter(f"p{n}", DTYPES[k])
            for n, k in enumerate(c)
        ]
        fields, size = layout("triton", "aiv", own, workspace=True)
        want += [*(str(f.offset) for f in fields), str(size)]
        members = ["void*"] * 3 + [spelt.get(k, "void*") for k in c] + ["int32_t"] * 3
        text = " ".join(
            f"{t} m{n} __attribute__((aligned({8 if t == 'void*' else 4})));"
            for n, t in enumerate(members)
        )
        lines.append(f"{{ struct __attribute__((packed)) s {{ {text} }};")
        for n in range(len(members)):
            lines.append(f'printf("%zu\\n", offsetof(struct s, m{n}));')
        lines.append('printf("%zu\\n", sizeof(struct s)); }')
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run(["cc", str(source), "-o", str(program)], check=True, timeout=60)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == want


@pytest.mark.parametrize("dtype", [f16, bf16, f32], ids=str)
def test_floats_are_rounded_to_their_type(dtype: DType) -> None:
    got = np.frombuffer(pack([Field("x", dtype, 0)], 8, {"x": 0.1})[: dtype.bytes], dtype.numpy)[0]
    assert got == np.array(0.1, dtype.numpy)
