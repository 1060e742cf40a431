"""Planted mistakes: one each in programs that are right, found at its line, and nothing else.

Some mistakes are wrong in two ways: a wait that is left out makes a race, and leaves its event set.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core_builder import after, drop, edit, fields, memory, out, source
from core_examples import EXAMPLES, Example, totals_example
from davinci_launch import CHIP

from terrazzo.ir.types import bf16, f16
from terrazzo.targets.davinci.checking.check import check
from terrazzo.targets.davinci.checking.finding import report
from terrazzo.targets.davinci.expr import add, make, mul, sub, var
from terrazzo.targets.davinci.program import Instr, Program, View, views, walk

Plant = Callable[[Program], Program]
SLOT = make("mod", var("trip"), 2)
OTHER = sub(1, SLOT)
TILE, N = 512, 3684
M = make("min", TILE, sub(N, mul(var("block"), TILE)))


def twice(label: str) -> Plant:
    return lambda p: edit(p, label, lambda s: [s, s])


def view_of(p: Program, label: str, number: int = 0) -> View:
    """Output (0) or an input of the instruction `label`."""
    for phase in p.phases:
        for f in phase.functions:
            for s in walk(f.body):
                if isinstance(s, Instr) and s.loc is not None and s.loc.text == label:
                    return list(views(s))[number]
    raise KeyError(label)


def pitch(p: Program, n: int) -> Program:
    """softmax: rows of h lie `n` elements apart."""
    for label in ("load", "round"):
        p = out(p, label, strides=(n, 1))
    for label in ("widen", "store"):
        p = source(p, label, 0, strides=(n, 1))
    return p


def first(p: Program, value: int) -> Program:
    def change(s: Instr) -> list[Instr]:
        return [Instr(s.op, s.out, (*s.ins[:2], value), s.attrs, s.loc)]

    return edit(p, "multiply", change)


SUM: dict[str, tuple[Plant, str]] = {
    "no wait for what is loaded": (lambda p: drop(p, "wait loaded"),
                                   "race add, event set loaded"),
    "no event for what is loaded": (lambda p: drop(p, "set loaded"), "deadlock wait loaded"),
    "loads into a slot in use": (lambda p: drop(p, "wait free in"),
                                 "race load x, event set free in"),
    "slots never free": (lambda p: drop(p, "set free in"),
                         "deadlock wait free in, deadlock drain in"),
    "stores too early": (lambda p: drop(p, "wait added"), "race store z, event set added"),
    "never stores": (lambda p: drop(p, "set added"), "deadlock wait added"),
    "adds over what is stored": (lambda p: drop(p, "wait free out"),
                                 "race add, event set free out"),
    "results never free": (lambda p: drop(p, "set free out"),
                           "deadlock wait free out, deadlock drain out"),
    "an event left": (lambda p: drop(p, "drain in"), "event set free in"),
    "another left": (lambda p: drop(p, "drain out"), "event set free out"),
    "not free at first": (lambda p: drop(p, "free in at first"), "deadlock wait free in"),
    "results not free at first": (lambda p: drop(p, "free out at first"),
                                  "deadlock wait free out"),
    "waits for the other slot": (lambda p: fields(p, "wait loaded", event=OTHER),
                                 "deadlock wait loaded, event set loaded"),
    "waits for another event": (lambda p: fields(p, "wait added", event=5),
                                "deadlock wait added, event set added"),
    "sets another event": (lambda p: fields(p, "set added", event=5),
                           "deadlock wait added, event set added"),
    "sets for another pipe": (lambda p: fields(p, "set added", dst="MTE2"),
                              "deadlock wait added, event set added"),
    "sets from another pipe": (lambda p: fields(p, "set loaded", src="MTE3"),
                               "deadlock wait loaded, event set loaded"),
    "events past the last": (
        lambda p: fields(fields(p, "set loaded", event=add(SLOT, 7)), "wait loaded",
                         event=add(SLOT, 7)), "event set loaded, event wait loaded"),
    "sets twice": (twice("set loaded"), "event set loaded"),
    "waits twice": (twice("wait loaded"), "deadlock wait loaded"),
    "says loaded before it loads": (lambda p: after(p, "set loaded", "wait free in"), "race add"),
    "says loaded between the loads": (lambda p: after(p, "set loaded", "load x"), "race add"),
    "frees before it adds": (lambda p: after(p, "set free in", "wait loaded"), "race load x"),
    "stores into the other slot": (lambda p: out(p, "add", slot=OTHER),
                                   "uninitialised store z, race add"),
    "loads into the other slot": (lambda p: out(p, "load y", slot=OTHER),
                                  "uninitialised add, race load y"),
    "never loads": (lambda p: drop(p, "load y"), "uninitialised add"),
    "loads too little": (
        lambda p: source(out(p, "load y", sizes=(sub(M, 8),)), "load y", 0, sizes=(sub(M, 8),)),
        "uninitialised add"),
    "loads one too many": (
        lambda p: source(out(p, "load x", sizes=(add(M, 1),)), "load x", 0, sizes=(add(M, 1),)),
        "bounds load x"),
    "reads behind the tensor": (
        lambda p: source(p, "load x", 0, offset=add(mul(var("block"), TILE), 100)),
        "bounds load x"),
    "writes behind the tensor": (
        lambda p: out(p, "store z", offset=mul(add(var("block"), 1), TILE)), "bounds store z"),
    "writes before the tensor": (
        lambda p: out(p, "store z", offset=sub(mul(var("block"), TILE), 8)), "bounds store z"),
    "whole last tile": (
        lambda p: source(out(p, "store z", sizes=(TILE,)), "store z", 0, sizes=(TILE,)),
        "bounds store z"),
    "cores do the same": (lambda p: fields(p, "block", lo=0), "cores store z"),
    "cores do some twice": (lambda p: fields(p, "block", step=2), "cores store z"),
    "slots of different tiles overlap": (
        lambda p: memory(p, "c", addresses=(1024, 6144)), "overlap add, race load x, race load y"),
    "tiles at one place": (lambda p: memory(p, "c", addresses=(0, 6144)), "overlap add"),
    "result over a source": (lambda p: memory(p, "o", addresses=(0, 10240)), "race load x"),
    "result beside a source": (lambda p: memory(p, "o", addresses=(1024, 10240)),
                               "overlap add, race load x"),
    "slots at one place": (lambda p: memory(p, "a", addresses=(0, 0)), "race load x"),
    "result beyond UB": (lambda p: memory(p, "o", addresses=(8192, 195584)), "capacity o"),
    "tile askew": (lambda p: memory(p, "o", addresses=(8200, 12288)), "alignment o"),
    "operand askew": (lambda p: out(source(p, "store z", 0, offset=4), "add", offset=4),
                      "bounds add, bounds store z, alignment add, alignment store z"),
    "adds in global memory": (
        lambda p: source(p, "add", 1, memory=view_of(p, "store z").memory, slot=0), "space add"),
    "a tile of another type": (lambda p: memory(p, "c", dtype=f16), "dtype load y, dtype add"),
    "no such instruction": (lambda p: fields(p, "add", op="vaddd"),
                            "misuse add, uninitialised store z"),
    "a broadcast without a source": (lambda p: fields(p, "add", op="vbrc", ins=()), "misuse add"),
    "sizes differ": (lambda p: source(p, "add", 1, sizes=(7,)), "misuse add"),
}  # fmt: skip
SOFTMAX: dict[str, tuple[Plant, str]] = {
    "never widens": (lambda p: drop(p, "widen"), "uninitialised hide"),
    "never finds the greatest": (lambda p: drop(p, "greatest"), "uninitialised less"),
    "no mask": (lambda p: drop(p, "mask"), "uninitialised hide"),
    "rows askew": (lambda p: pitch(p, 104),
                   "alignment load, alignment widen, alignment round, alignment store"),
    "mask askew": (
        lambda p: source(out(p, "mask", offset=4), "hide", 0, offset=4),
        "alignment mask, alignment hide"),
    "too little room": (lambda p: memory(p, "place", elements=90), "bounds place, bounds mask"),
    "widens over itself": (lambda p: memory(p, "f", addresses=(512,)),
                           "overlap widen, overlap round"),
    "widens in place": (lambda p: memory(p, "f", addresses=(0,)), "overlap widen"),
    "subtracts over what it repeats": (
        lambda p: memory(p, "s", addresses=(2048,)), "overlap less, overlap divide"),
    "mask of another size": (lambda p: source(p, "hide", 0, sizes=(1, 50)), "misuse hide"),
    "mask overwritten": (lambda p: memory(p, "s", addresses=(12288,)), "overlap hide"),
    "waits for nothing": (lambda p: drop(p, "wait loaded"),
                          "race widen, race round, event set loaded"),
    "loads over what is stored": (lambda p: drop(p, "wait free"),
                                  "race load, event set free"),
    "sums along the rows": (
        lambda p: edit(p, "total", lambda s: [Instr(s.op, s.out, s.ins, (("axis", 0),
                                                    ("kind", "sum")), s.loc)]), "misuse total"),
}  # fmt: skip
K = make("min", 32, sub(80, var("inner")))
PRODUCT: dict[str, tuple[Plant, str]] = {
    "never starts the sum": (lambda p: first(p, 0), "uninitialised multiply"),
    "no wait in L1": (lambda p: drop(p, "wait in l1"),
                      "race to l0a, race to l0b, event set in l1"),
    "no wait in L0": (lambda p: drop(p, "wait in l0"), "race multiply, event set in l0"),
    "loads over L1": (lambda p: drop(p, "wait free l1"),
                      "race load a, race load b, event set free l1"),
    "moves over L0": (lambda p: drop(p, "wait free l0"), "race to l0a, event set free l0"),
    "out too early": (lambda p: drop(p, "wait summed"), "race out, event set summed"),
    "never out": (lambda p: drop(p, "set summed"), "deadlock wait summed"),
    "multiplies over what goes out": (lambda p: drop(p, "wait free c"),
                                      "race multiply, event set free c"),
    "L0 never free": (lambda p: drop(p, "set free l0"),
                      "deadlock wait free l0, deadlock drain l0"),
    "L0A askew": (lambda p: memory(p, "l0a", addresses=(0, 2304)), "alignment l0a"),
    "L0A slots overlap": (lambda p: memory(p, "l0a", addresses=(0, 1024)), "race to l0a"),
    "L0B beyond its end": (lambda p: memory(p, "l0b", addresses=(0, 64 * 1024 - 2048)),
                           "capacity l0b"),
    "L1 beyond its end": (lambda p: memory(p, "l1b", addresses=(4096, 512 * 1024 - 64)),
                          "capacity l1b"),
    "L0C beyond its end": (lambda p: memory(p, "l0c", addresses=(126 * 1024,)), "capacity l0c"),
    "blocks of half the columns": (lambda p: out(p, "load a", fractal=8), "alignment load a"),
    "blocks of 24 rows": (lambda p: out(p, "load a", strides=(16, 384)), "alignment load a"),
    "k differs": (lambda p: source(p, "multiply", 0, sizes=(1, 16)), "misuse multiply"),
    "reads behind a": (
        lambda p: source(p, "load a", 0, offset=add(mul(var("block"), 32 * 80),
                                                    add(var("inner"), 80))), "bounds load a"),
    "cores write the same": (
        lambda p: out(p, "out", offset=mul(var("block"), 16 * 48)), "cores out"),
    "from L0 as if it were L1": (lambda p: fields(p, "multiply", op="mmad_l1"), "space multiply"),
    "operands the wrong way round": (
        lambda p: source(p, "multiply", 0, memory=view_of(p, "multiply", 2).memory),
        "space multiply"),
    "loads into L0": (
        lambda p: out(p, "load a", memory=view_of(p, "to l0a").memory),
        "space load a, uninitialised to l0a"),
    "sums in f16": (lambda p: memory(p, "l0c", dtype=f16), "narrow multiply, dtype out"),
    "sums in bf16": (lambda p: memory(p, "l0c", dtype=bf16), "narrow multiply, dtype out"),
    "half of b": (
        lambda p: source(out(p, "load b", sizes=(K, 32)), "load b", 0, sizes=(K, 32)),
        "uninitialised to l0b"),
    "a vector instruction": (lambda p: fields(p, "multiply", op="vadd"), "space multiply"),
}  # fmt: skip
MIXED: dict[str, tuple[Plant, str]] = {
    "takes too early": (lambda p: drop(p, "wait ready"),
                        "uninitialised take, race out, flag set ready"),
    "never ready": (lambda p: drop(p, "set ready"), "deadlock wait ready"),
    "writes over what is taken": (lambda p: drop(p, "wait taken"), "race take, flag set taken"),
    "never taken": (lambda p: drop(p, "set taken"),
                    "deadlock wait taken, deadlock drain taken"),
    "both wait": (lambda p: drop(p, "taken at first"), "deadlock wait taken"),
    "a flag left": (lambda p: drop(p, "drain taken"), "flag set taken"),
    "another flag": (lambda p: fields(p, "wait ready", flag=2),
                     "deadlock wait ready, flag set ready"),
    "flags past the last": (
        lambda p: fields(fields(p, "wait ready", flag=11), "set ready", flag=11),
        "flag set ready, flag wait ready"),
    "says taken too early": (lambda p: after(p, "set taken", "wait ready"), "race out"),
    "says ready too early": (lambda p: after(p, "set ready", "wait taken"),
                             "race take"),
    "both vector cores store the same": (
        lambda p: out(p, "store", offset=mul(var("block"), 32 * 48)), "race store"),
    "takes from L0C": (
        lambda p: source(p, "take", 0, memory=view_of(p, "multiply").memory), "space take"),
    "puts into UB": (lambda p: out(p, "out", memory=view_of(p, "take").memory),
                     "space out, uninitialised take"),
    "leaves rows out": (
        lambda p: source(out(p, "out", sizes=(16, 48)), "out", 0, sizes=(16, 48)),
        "uninitialised take"),
    "groups share a slot": (
        lambda p: source(out(p, "out", offset=0), "take", 0,
                         offset=mul(make("min", mul(16, var("half")), sub(150, mul(var("block"),
                                                                               32))), 48)),
        "cores out"),
    "no barrier": (lambda p: drop(p, "multiplied"), "race out"),
}  # fmt: skip
PHASES: dict[str, tuple[Plant, str]] = {
    "no barrier behind the load": (lambda p: drop(p, "loaded 0"), "race scale 0"),
    "no barrier before the store": (lambda p: drop(p, "scaled 1"), "race store 1"),
    "reads what others write": (
        lambda p: source(p, "load 1", 0, memory=p.gm[1], offset=mul(var("core"), 256)),
        "cores load 1, cores store 1"),
    "half a workspace": (
        lambda p: source(out(p, "store 0", sizes=(128,)), "store 0", 0, sizes=(128,)),
        "uninitialised load 1"),
    "behind the workspace": (
        lambda p: source(p, "load 1", 0, offset=mul(add(var("core"), 1), 256)), "bounds load 1"),
}  # fmt: skip
TOTALS: dict[str, tuple[Plant, str]] = {
    "sums in f16": (lambda p: totals_example(f16).program, "narrow accumulate, narrow total"),
    "no zero": (lambda p: drop(p, "zero"), "uninitialised accumulate"),
}  # fmt: skip
FAULTS = [
    pytest.param(example, *fault, id=f"{example}: {name}")
    for example, faults in (("sum", SUM), ("softmax", SOFTMAX), ("product", PRODUCT),
                            ("mixed", MIXED), ("phases", PHASES), ("totals", TOTALS))
    for name, fault in faults.items()
]  # fmt: skip


def places(example: Example, program: Program) -> set[str]:
    args = {n: a.astype(g.dtype.numpy) for g in program.gm if not g.workspace
            for n, a in example.args.items() if n == g.name}  # fmt: skip
    found = check(program, CHIP, args)
    assert all(f.message and f.remedy and f.count >= 1 for f in found)
    return {f"{f.kind} {f.loc.text}" for f in found if f.loc is not None}


@pytest.mark.parametrize(("example", "plant", "want"), FAULTS)
def test_a_planted_mistake_is_found_where_it_is(example: str, plant: Plant, want: str) -> None:
    right = EXAMPLES[example]()
    assert places(right, plant(right.program)) == set(want.split(", "))


def test_the_report_marks_the_line_and_says_what_to_do() -> None:
    right = EXAMPLES["sum"]()
    (race, event) = check(drop(right.program, "wait loaded"), CHIP, right.args)
    assert (race.kind, race.count, event.kind) == ("race", 16, "event")
    lines = report([race, event]).split("\n")
    assert lines[:3] == [
        "vector.py:16:1: race: vadd reads `a` at byte 0 on V while load on MTE2 still writes it:"
        " nothing orders the two (16 times); set an event on MTE2 behind the one and wait for it on"
        " V", "    add", "    ^^^",
    ]  # fmt: skip
    assert "the other place" in lines[3] and lines[4].strip() == "load x"


def test_a_capacity_error_lists_the_tiles() -> None:
    right = EXAMPLES["sum"]()
    (found,) = check(memory(right.program, "o", addresses=(8192, 195584)), CHIP, right.args)
    assert "reaches byte 197632 of UB, which has 196608" in found.message
    assert len(found.table) == 3 and "2048 bytes x 2  `a`" in found.table[0]


def test_there_are_enough_of_all_kinds() -> None:
    kinds = {w.split()[0] for p in FAULTS for w in str(p.values[2]).split(", ")}
    assert len(FAULTS) >= 100
    assert kinds == {"capacity", "alignment", "bounds", "uninitialised", "overlap", "race", "cores",
                     "event", "flag", "deadlock", "space", "dtype", "narrow",
                     "misuse"}  # fmt: skip
