"""The simulator's constants, in one place: their values, and where each comes from.

Frozen before any kernel was tuned. "Facts" are the vendor's published tables and documents;
"fitted" are chosen so that the published kernel measurements come out right, all families together
(`benchmarks/davinci_measured.py --fit` shows the fit). Cycles are of the core's clock, rates are
bytes a cycle and core unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    # Global memory, shared by all cores.
    hbm_share: float = 0.824  # sustained share of HBM's peak; fitted (1.45 of 1.76 TB/s)
    l2_rate: float = 142.0  # of all reads and writes, by the chip's cube cores; 6.3 TB/s on 910B1
    hot_tb_s: float = 0.64  # one address, all cores together; facts
    read_latency: float = 340.0  # that a dependent sees; fitted (facts' table implies 230-345)
    write_latency: float = 170.0  # fitted on the single-core add
    issue: float = 20.0  # a transfer's least time on its pipe; fitted on the copies of 128 bytes
    # Reads of one core. The two tables of the facts (910B1, 910B3) read as L2 miss and hit.
    ub_hit: float = 113.0
    ub_miss: float = 46.8
    l1_hit: float = 168.0
    l1_miss: float = 80.0  # facts: "2x+" below a hit
    nd2nz_row: float = 3.7  # cycles beside its bytes of each run of rows on its way to NZ; fitted
    # Writes of one core, and of all at a time (they come in bursts).
    ub_store: float = 65.0  # facts
    fix_store: float = 120.0  # facts, 118-126
    fix_rate: float = 53.0  # of all cube cores together, by the chip's cube cores; fitted
    # Inside a core.
    l0a: float = 256.0  # facts
    l0b: float = 128.0  # facts
    l0_head: float = 50.0  # cycles a move to L0 takes beside its bytes; facts (3D moves)
    mmad_extra: float = 2.0  # cycles between two mmads that follow each other; facts
    mmad_tail: float = 21.0  # from the last step to the result; facts
    vector_head: float = 24.4  # of a V instruction that nothing hides; facts
    vector_partial: float = 16.0  # more for a count that is not whole repeats; facts
    read_read: float = 1.0  # more cycles a repeat: both sources in one bank group; facts
    read_write: float = 0.79  # result and a source in one bank; facts
    block_stride_0: float = 0.7  # a source block that stands for a whole repeat; facts
    reduce_sum: tuple[float, float] = (7.0, 3.0)  # cycles a repeat, 2 and 4 byte elements; facts
    reduce_group: tuple[float, float] = (7.0, 1.0)  # blocks of 32 bytes to one element each; facts
    reduce_max: tuple[float, float] = (6.9, 7.0)  # facts
    # Order.
    scalar_issue: float = 1.0  # the scalar unit's cycles to hand over an instruction; facts
    queue_depth: int = 32  # instructions that wait on a pipe; facts (of MTE1 and M)
    hand_over: float = 250.0  # a flag between cube and vector core; fitted (facts: 220)
    launch_us: float = 5.0  # fitted (facts: 5.9)


DEFAULT = Constants()
