"""The worker pool's generated code: workers, barrier, executor of programs (how a caller gets in:
pool_entry_ir.py).

Memory shared by the threads (offsets in bytes; each hot word has two cache lines of its own,
because Intel's prefetcher fetches lines in pairs):

    pool:     0 { ptr program (null: workers exit), i64 threads there are, i64 pthread_self of the
              main thread, i32 lock: 0 free, 1 held, 2 held and wanted, i64 ns that threads slept
              at barriers } | 128 i32 arrivals
              256 i32 phase | 384 i32 sleepers | 512 + 128 * tid: mailbox
    mailbox:  { i32 sequence, i32 sleepers, i32 tid, i32 CPU, ptr pool, 2 of pool_apart_ir.py }, and
              on its second line the thread's habits of waiting { i64 budget, i64 turns }: 64
              barriers, 80 programs
    program:  i64 x 16 { entries, count, threads, control, profile or 0, guarded 0/1, barrier spin,
              idle spin, pool, program to run next or 0, 6 of pool_crowd_ir.py }
    entry:    { ptr phase, ptr table }
    control:  { i32 cancel, i32 fault, i64 fault detail }; cancel: bit 0 asked for, bit 1 Ctrl-C
    profile:  i64 [count][threads][2]: cycle counter before and after each phase

The phase word advances by 2 at each barrier; its bit 0 says "stop". The last thread to arrive looks
at the control words and publishes its decision in that word, so all threads decide alike. It also
zeroes the work counter of the phase just done (table slot 3), when no thread can be using it.

How long to spin is learnt by each thread: a spin that ended in sleep halves its budget, one that
was worth it raises it by a quarter or to twice what it took. Where threads have their cores, nobody
sleeps; where another process takes one, spinning only keeps the late thread off ours (240 phases of
20 µs on 2 busy cores: 12 ms with 1 µs of spinning, 23 ms with 50, 241 ms with 1000).
"""

from __future__ import annotations

from string import Template

from terrazzo.targets.cpu.futex import MASK_BYTES, system_ir
from terrazzo.targets.cpu.pool_apart_ir import APART_IR
from terrazzo.targets.cpu.pool_crowd_ir import CROWD_IR, LONGEST_NS, REST_NS, SHORTEST_NS
from terrazzo.targets.cpu.pool_entry_ir import ENTRY_IR

ARRIVALS, PHASE, SLEEPERS, MAILBOXES, STRIDE = 128, 256, 384, 512, 128
HABITS = MAILBOXES + 64
MAX_THREADS = 256
MASKS = MAILBOXES + STRIDE * MAX_THREADS
POOL_BYTES = MASKS + MASK_BYTES * MAX_THREADS
LEAST_PAUSES = 32  # about 1 µs: the skew of threads that do equal work

_IR = r"""
; Waits until *word != old and returns what it is then: spins as long as `habit` has learnt to be
; worth it, at most `limit` pauses, then sleeps. One turn in mask + 1 tries the whole limit.
; habit: { i64 budget, i64 turns }, this thread's own. Adds the ns slept to *slept.
define internal i32 @wait_change(ptr %word, i32 %old, ptr %sleepers, ptr %habit, i64 %limit,
                                 i64 %mask, ptr %slept) nounwind {
entry:
  %first = load atomic i32, ptr %word acquire, align 4
  %there = icmp ne i32 %first, %old
  br i1 %there, label %out, label %plan
plan:
  %stored = load i64, ptr %habit
  %budget = call i64 @llvm.umin.i64(i64 %stored, i64 %limit)
  %turnsp = getelementptr i8, ptr %habit, i64 8
  %turns0 = load i64, ptr %turnsp
  %turns = add i64 %turns0, 1
  store i64 %turns, ptr %turnsp
  %masked = and i64 %turns, %mask
  %probe = icmp eq i64 %masked, 0
  %allowed = select i1 %probe, i64 %limit, i64 %budget
  br label %spin
spin:
  %left = phi i64 [ %allowed, %plan ], [ %less, %again ]
  %seen = load atomic i32, ptr %word acquire, align 4
  %moved = icmp ne i32 %seen, %old
  br i1 %moved, label %worth, label %wait
wait:
  %tired = icmp eq i64 %left, 0
  br i1 %tired, label %vain, label %again
again:
  call void @pause()
  %less = sub i64 %left, 1
  br label %spin
worth:
  %used = sub i64 %allowed, %left
  %twice = shl i64 %used, 1
  %quarter = lshr i64 %budget, 2
  %more = add i64 %budget, %quarter
  %more1 = add i64 %more, 1
  %wish = call i64 @llvm.umax.i64(i64 %more1, i64 %twice)
  store i64 %wish, ptr %habit
  br label %out
vain:
  %half = lshr i64 %budget, 1
  %some = call i64 @llvm.umax.i64(i64 %half, i64 $LEAST)
  store i64 %some, ptr %habit
  %t0 = call i64 @now()
  br label %sleep
sleep:
  ; The waker changes the word before it reads `sleepers`; we count ourselves before the kernel
  ; compares the word. Both sequentially consistent: one of us sees the other.
  %s0 = atomicrmw add ptr %sleepers, i32 1 seq_cst
  call void @futex_wait(ptr %word, i32 %old)
  %s1 = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %now = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %now, %old
  br i1 %same, label %sleep, label %awake
awake:
  %t1 = call i64 @now()
  %ns = sub i64 %t1, %t0
  %s2 = atomicrmw add ptr %slept, i64 %ns monotonic
  br label %out
out:
  %value = phi i32 [ %first, %entry ], [ %seen, %worth ], [ %now, %awake ]
  ret i32 %value
}

; After a phase, with no thread inside it: rewinds its work counter, says whether to stop.
define internal i32 @settle(ptr %table, ptr %control) nounwind alwaysinline {
entry:
  %slot3 = getelementptr i8, ptr %table, i64 24
  %used = load i64, ptr %slot3
  %dirty = icmp ne i64 %used, 0
  br i1 %dirty, label %rewind, label %look
rewind:
  store i64 0, ptr %slot3
  br label %look
look:
  %words = load atomic i64, ptr %control monotonic, align 8
  %any = icmp ne i64 %words, 0
  %stop = zext i1 %any to i32
  ret i32 %stop
}

; Barrier of all threads after the phase with `table`; returns 1 when the program shall stop.
define internal i32 @barrier(ptr %pool, i32 %n, ptr %table, ptr %control, ptr %habit,
                             i64 %spin) nounwind alwaysinline {
entry:
  %arrivals = getelementptr i8, ptr %pool, i64 $ARRIVALS
  %phase = getelementptr i8, ptr %pool, i64 $PHASE
  %sleepers = getelementptr i8, ptr %pool, i64 $SLEEPERS
  %old = load atomic i32, ptr %phase monotonic, align 4
  %before = atomicrmw add ptr %arrivals, i32 1 acq_rel
  %others = sub i32 %n, 1
  %last = icmp eq i32 %before, %others
  br i1 %last, label %release, label %wait
release:
  store atomic i32 0, ptr %arrivals monotonic, align 4
  %stop = call i32 @settle(ptr %table, ptr %control)
  %next = add i32 %old, 2
  %even = and i32 %next, -2
  %new = or i32 %even, %stop
  %x = atomicrmw xchg ptr %phase, i32 %new seq_cst
  %s = load atomic i32, ptr %sleepers seq_cst, align 4
  %asleep = icmp ne i32 %s, 0
  br i1 %asleep, label %wake, label %released
wake:
  call void @futex_wake(ptr %phase, i32 2147483647)
  br label %released
released:
  ret i32 %stop
wait:
  %slept = getelementptr i64, ptr %pool, i64 4
  %seen = call i32 @wait_change(ptr %phase, i32 %old, ptr %sleepers, ptr %habit,
                               i64 %spin, i64 31, ptr %slept)
  %said = and i32 %seen, 1
  ret i32 %said
}

; Runs the program's entries as thread `tid` of n64; returns how many were done when it ended.
define internal i64 @execute(ptr %pool, ptr %program, i32 %tid, i64 %n64) nounwind {
entry:
  %entries = load ptr, ptr %program
  %p1 = getelementptr i64, ptr %program, i64 1
  %count = load i64, ptr %p1
  %n = trunc i64 %n64 to i32
  %p3 = getelementptr i64, ptr %program, i64 3
  %control = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %program, i64 4
  %profile = load ptr, ptr %p4
  %p6 = getelementptr i64, ptr %program, i64 6
  %spin = load i64, ptr %p6
  %timed = icmp ne ptr %profile, null
  %alone = icmp eq i32 %n, 1
  %tid64 = zext i32 %tid to i64
  %mine = mul i64 %tid64, $STRIDE
  %habits = add i64 %mine, $HABITS
  %habit = getelementptr i8, ptr %pool, i64 %habits
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %done, %joined ]
  %at = shl i64 %i, 4
  %entryp = getelementptr i8, ptr %entries, i64 %at
  %fn = load ptr, ptr %entryp
  %tablep = getelementptr i8, ptr %entryp, i64 8
  %table = load ptr, ptr %tablep
  br i1 %timed, label %watch, label %plain
plain:
  call void %fn(ptr %table, i32 %tid, i32 %n)
  br label %join
watch:
  %row = mul i64 %i, %n64
  %cell = add i64 %row, %tid64
  %off = shl i64 %cell, 4
  %begin = getelementptr i8, ptr %profile, i64 %off
  %end = getelementptr i8, ptr %begin, i64 8
  %t0 = call i64 @cycles()
  call void %fn(ptr %table, i32 %tid, i32 %n)
  %t1 = call i64 @cycles()
  store i64 %t0, ptr %begin
  store i64 %t1, ptr %end
  br label %join
join:
  br i1 %alone, label %single, label %together
single:
  %stop1 = call i32 @settle(ptr %table, ptr %control)
  br label %joined
together:
  %stopn = call i32 @barrier(ptr %pool, i32 %n, ptr %table, ptr %control, ptr %habit,
                           i64 %spin)
  br label %joined
joined:
  %stop = phi i32 [ %stop1, %single ], [ %stopn, %together ]
  %done = add i64 %i, 1
  %more = icmp ult i64 %done, %count
  %go = icmp eq i32 %stop, 0
  %continue = and i1 %more, %go
  br i1 %continue, label %next, label %out
out:
  ret i64 %done
}

; Start routine of a worker (pthread_create); its argument is its mailbox.
define ptr @worker(ptr %mail) nounwind {
entry:
  %sleepers = getelementptr i8, ptr %mail, i64 4
  %tidp = getelementptr i8, ptr %mail, i64 8
  %tid = load i32, ptr %tidp
  %poolp = getelementptr i8, ptr %mail, i64 16
  %pool = load ptr, ptr %poolp
  %habit = getelementptr i8, ptr %mail, i64 80
  %slept = getelementptr i8, ptr %mail, i64 96 ; of idleness: nobody asks
  %cpup = getelementptr i8, ptr %mail, i64 12
  %numberp = getelementptr i8, ptr %mail, i64 24
  %number = call i64 @thread_number()
  store atomic i64 %number, ptr %numberp release, align 8
  br label %idle
idle:
  %last = phi i32 [ 0, %entry ], [ %now, %work ]
  %patience = phi i64 [ 0, %entry ], [ %spin, %work ]
  %cpu = call i32 @sched_getcpu()
  store atomic i32 %cpu, ptr %cpup monotonic, align 4
  %now = call i32 @wait_change(ptr %mail, i32 %last, ptr %sleepers, ptr %habit,
                               i64 %patience, i64 7, ptr %slept)
  call void @spread(ptr %pool, ptr %mail, i32 %tid)
  %program = load ptr, ptr %pool
  %quit = icmp eq ptr %program, null
  br i1 %quit, label %out, label %work
work:
  ; Read before executing: once the last barrier is passed the program belongs to the caller again.
  %p7 = getelementptr i64, ptr %program, i64 7
  %spin = load i64, ptr %p7
  %p2 = getelementptr i64, ptr %program, i64 2
  %n = load i64, ptr %p2
  %r = call i64 @execute(ptr %pool, ptr %program, i32 %tid, i64 %n)
  br label %idle
out:
  ret ptr null
}

; Hands the pool's program to the workers 1 .. n-1 by their mailboxes.
define internal void @post(ptr %pool, i64 %n) nounwind {
entry:
  %several = icmp ugt i64 %n, 1
  br i1 %several, label %look, label %out
look:
  %own = call i32 @sched_getcpu()
  br label %next
next:
  %t = phi i64 [ 1, %look ], [ %t1, %posted ]
  %left = icmp ult i64 %t, %n
  br i1 %left, label %one, label %out
one:
  %scaled = mul i64 %t, $STRIDE
  %off = add i64 %scaled, $MAILBOXES
  %mail = getelementptr i8, ptr %pool, i64 %off
  %cpup = getelementptr i8, ptr %mail, i64 12
  %cpu = load atomic i32, ptr %cpup monotonic, align 4
  %shared = icmp eq i32 %cpu, %own
  br i1 %shared, label %apart, label %tell
apart:
  call void @keep_off(ptr %pool, ptr %mail, i64 %t, i32 %own)
  br label %tell
tell:
  %seq = load atomic i32, ptr %mail monotonic, align 4
  %new = add i32 %seq, 1
  %x = atomicrmw xchg ptr %mail, i32 %new seq_cst
  %sleepers = getelementptr i8, ptr %mail, i64 4
  %s = load atomic i32, ptr %sleepers seq_cst, align 4
  %asleep = icmp ne i32 %s, 0
  br i1 %asleep, label %wake, label %posted
wake:
  br i1 %shared, label %call, label %turn
turn:
  call void @keep_off(ptr %pool, ptr %mail, i64 %t, i32 %own)
  br label %call
call:
  call void @futex_wake(ptr %mail, i32 1)
  br label %posted
posted:
  %t1 = add i64 %t, 1
  br label %next
out:
  ret void
}

; Tells all workers 1 .. n-1 to return.
define void @stop(ptr %pool, i64 %n) nounwind {
  store ptr null, ptr %pool
  call void @post(ptr %pool, i64 %n)
  ret void
}

define void @pauses(i64 %times) nounwind {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %j, %next ]
  call void @pause()
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %times
  br i1 %more, label %next, label %out
out:
  ret void
}
"""


def pool_ir(machine: str | None = None) -> str:
    """The pool's LLVM IR for this machine (or the one named, for the tests)."""
    offsets = Template(_IR).substitute(
        ARRIVALS=ARRIVALS,
        PHASE=PHASE,
        SLEEPERS=SLEEPERS,
        MAILBOXES=MAILBOXES,
        STRIDE=STRIDE,
        HABITS=HABITS,
        LEAST=LEAST_PAUSES,
    )
    apart = Template(APART_IR).substitute(
        MASKS=MASKS, MASK_BYTES=MASK_BYTES, MASK_BITS=8 * MASK_BYTES, MASK_WORDS=MASK_BYTES // 8
    )
    crowd = Template(CROWD_IR).substitute(SHORTEST=SHORTEST_NS, LONGEST=LONGEST_NS, REST=REST_NS)
    return system_ir(machine=machine) + crowd + apart + offsets + ENTRY_IR
