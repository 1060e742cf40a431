"""Each rule speaks on a case made for it, with its numbers, and is silent on another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from machine import simulate
from programs import CHIP, GEMM_LISTING, gemm

from terrazzo.profile.report import Report, report

Make = Callable[..., Report]
CALM = {"hbm_bytes": 1e6, "launch_us": 0.1}  # far from the memory's roof, no launch to speak of


def said(r: Report, rule: str) -> tuple[int, str]:
    found = [a for a in r.advice if a.rule == rule]
    assert len(found) == 1, [a.text for a in r.advice]
    return found[0].line, found[0].text


def rules(r: Report) -> set[str]:
    return {a.rule for a in r.advice}


def test_single_buffered(gemm_report: Make, add_report: Make) -> None:
    line, text = said(gemm_report(stages=1), "single_buffered")
    assert line == 15
    assert "`a[i, p]` and `b[p, j]` (line 16) have a single buffer each" in text
    assert "stages=2 needs 192 KiB more of L1, which fits (192 KiB of 512 KiB are in use)" in text
    assert "single_buffered" not in rules(gemm_report(stages=2))
    _, text = said(add_report(stages=1, elements=32768), "single_buffered")
    assert "128 KiB more of UB, which does not fit (192 KiB of 192 KiB are in use)" in text


def test_short_transfers(add_report: Make) -> None:
    r = add_report(elements=1024)
    texts = [a.text for a in r.advice if a.rule == "short_transfers"]
    assert any(
        t.startswith("`x` and `y` (line 34) move 2 KiB at a time, 86 times a core") for t in texts
    )
    assert all("tiles 8 times as large" in t for t in texts)
    assert "short_transfers" not in rules(add_report())


def test_narrow_rows(gemm_report: Make) -> None:
    line, text = said(gemm_report(tiles=(128, 256, 64)), "narrow_rows")
    assert line == 16 and "`a` (line 16)" in text and "rows of 128 B" in text
    assert "(256 elements)" in text
    assert "narrow_rows" not in rules(gemm_report())


def test_unaligned_rows(gemm_report: Make) -> None:
    _, text = said(gemm_report(stride=2047), "unaligned_rows")
    assert "Rows of `b` (line 16) lie 4,094 B apart" in text
    assert "512 B touches 2 lines of 512 B instead of 1" in text and "2,048 elements" in text
    assert "unaligned_rows" not in rules(gemm_report())


def test_same_address(add_report: Make) -> None:
    _, text = said(add_report(shared=True), "same_address")
    assert text.startswith("All 48 vector cores read `x` (line 34)") and "50 %" in text
    assert "same_address" not in rules(add_report())


def test_store_bound(gemm_report: Make) -> None:
    short = {"k": 256, "n": 4096}
    line, text = said(gemm_report(**short), "store_bound")
    assert line == 17 and "FixPipe" in text and "one slot of 128 KiB in L0C" in text
    assert "store_bound" not in rules(gemm_report())


def test_bank_conflicts(add_report: Make) -> None:
    line, text = said(add_report(), "bank_conflicts")
    assert line == 34 and "vadd" in text and "14 %" in text
    assert "`x[i]` (0x00000) and `y[i]` (0x10000)" in text and "move one by 256 B" in text
    assert "bank_conflicts" not in rules(add_report(timeline={"conflicts": 0.0}))
    assert "bank_conflicts" not in rules(add_report(clash=False, elements=14336))


def test_partial_fractals(gemm_report: Make) -> None:
    _, text = said(gemm_report(m=1000, tiles=(20, 256, 256)), "partial_fractals")
    assert "20 × 256 × 64 (line 16), padded to 32 × 256 × 64: 38 %" in text
    assert "partial_fractals" not in rules(gemm_report())


def test_few_repeats(add_report: Make) -> None:
    _, text = said(add_report(elements=128), "few_repeats")
    assert "works on 1 repeat of 256 B a time in vadd (line 34)" in text and "96 %" in text
    assert "few_repeats" not in rules(add_report())


def test_few_cores_and_last_round(gemm_report: Make) -> None:
    line, text = said(gemm_report(m=1024, n=256, cores=8), "few_cores")
    assert line == 13 and text.startswith("8 of 24 cube cores have work (line 13)")
    line, text = said(gemm_report(m=1024, n=2048), "last_round")
    assert line == 13 and text.startswith("64 blocks over 24 cube cores (line 13): 16 have 3")
    assert not {"few_cores", "last_round"} & rules(gemm_report(m=1536, n=2048))


@pytest.mark.parametrize("slow", [True, False])
def test_hand_over(slow: bool) -> None:
    """Vector cores wait for the cube: worth a word where the cube is not busy either."""
    program = gemm(handed=True)
    t = simulate(program, CHIP)
    t = replace(t, cycles=t.cycles * (2 if slow else 1), **CALM)
    r = report(t, program, GEMM_LISTING)
    if slow:
        line, text = said(r, "hand_over")
        assert line == 13 and "of the vector cores waits" in text and "for the cube cores" in text
    else:
        assert "hand_over" not in rules(r)


def test_launch_bound(add_report: Make) -> None:
    _, text = said(add_report(n=1 << 18), "launch_bound")
    assert text.startswith("The launch takes 5.0 of")
    assert "launch_bound" not in rules(add_report(n=1 << 25))


def test_near_the_roof(add_report: Make) -> None:
    """1.76 TB/s at 50 µs are 88 MB."""
    near = {"hbm_bytes": 0.9 * 88e6, "cycles": 50 * 1800.0, "launch_us": 0.0}
    r = add_report(timeline=near)
    _, text = said(r, "near_the_roof")
    assert "90 % of device memory (1.58 TB/s of 1.76 TB/s)" in text and "gains little" in text
    assert r.advice[0].rule == "near_the_roof" and r.figures.bound == "memory"
    assert "near_the_roof" not in rules(add_report(timeline=CALM | {"cycles": 1e5}))


def test_sorted_by_share(add_report: Make) -> None:
    shares = [a.share for a in add_report(elements=1024, stages=1).advice]
    assert shares == sorted(shares, reverse=True) and len(shares) >= 4
