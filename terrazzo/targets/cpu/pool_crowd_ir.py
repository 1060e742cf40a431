"""When a program runs on its caller alone, as generated code: another process has taken a core.

A thread that shares its core is late at every barrier by as long as the other process's turn (3 ms
and more), and all the others wait. Then one thread may be faster than two: it goes where there is a
free core. Results of kernels do not depend on the thread count: each run of a program may choose.

Measured for each program: ns a run alone (a mean that forgets by a quarter). A run on all threads
in which they slept at barriers for over a quarter of its time is late. After two late runs close to
each other the program runs alone once, if it never did, to know how long that takes: a worker that
slept is late, too, and still helps. If runs on all threads are slower (the last, and the mean of
them), the program runs alone for SHORTEST_NS, then on all threads again; if that is late too and
slower than alone, for twice as long, up to LONGEST_NS: by so much a core that is free again is
noticed late. If it was not slower, no trial for REST_NS. Where nobody sleeps nothing of this
happens.

    program:  i64 10 alone until (ns of the clock, 0: not, -1: once), 11 length of the period, 12 ns
              alone, 13 no trial before, 14 whether it may (0/1: else it never does), 15 suspicion:
              4 a late run, up to 8, -1 a punctual one, 16 ns on all threads (such a mean)
"""

from __future__ import annotations

SHORTEST_NS, LONGEST_NS, REST_NS = 20_000_000, 160_000_000, 250_000_000

CROWD_IR = r"""
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define internal i64 @now() nounwind {
  %t = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 1, ptr %t) ; CLOCK_MONOTONIC
  %s = load i64, ptr %t
  %np = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %np
  %ns = mul i64 %s, 1000000000
  %sum = add i64 %ns, %n
  ret i64 %sum
}

; A mean that forgets by a quarter; 0 is none yet.
define internal void @mean(ptr %p, i64 %t) nounwind {
  %old = load i64, ptr %p
  %none = icmp eq i64 %old, 0
  %three = mul i64 %old, 3
  %four = add i64 %three, %t
  %new = lshr i64 %four, 2
  %r = select i1 %none, i64 %t, i64 %new
  store i64 %r, ptr %p
  ret void
}

; Whether the program is to run alone now. A program that is profiled runs on all threads.
define internal i1 @alone(ptr %program, i64 %now) nounwind {
  %untilp = getelementptr i64, ptr %program, i64 10
  %until = load i64, ptr %untilp
  %period = icmp ult i64 %now, %until
  %profilep = getelementptr i64, ptr %program, i64 4
  %profile = load i64, ptr %profilep
  %unwatched = icmp eq i64 %profile, 0
  %r = and i1 %period, %unwatched
  ret i1 %r
}

; After a run of `took` ns that ended at `now`, on `ran` of `n` threads, which slept `slept` ns.
define internal void @learn(ptr %program, i64 %n, i64 %ran, i64 %took, i64 %now, i64 %slept)
    nounwind {
entry:
  %untilp = getelementptr i64, ptr %program, i64 10
  %lengthp = getelementptr i64, ptr %program, i64 11
  %onep = getelementptr i64, ptr %program, i64 12
  %restp = getelementptr i64, ptr %program, i64 13
  %doubtp = getelementptr i64, ptr %program, i64 15
  %was_alone = icmp eq i64 %ran, 1
  br i1 %was_alone, label %single, label %all
single:
  call void @mean(ptr %onep, i64 %took)
  %until0 = load i64, ptr %untilp
  %once = icmp eq i64 %until0, -1
  %until1 = select i1 %once, i64 0, i64 %until0
  store i64 %until1, ptr %untilp
  ret void
all:
  %allp = getelementptr i64, ptr %program, i64 16
  call void @mean(ptr %allp, i64 %took)
  %usual = load i64, ptr %allp
  %best = call i64 @llvm.umin.i64(i64 %usual, i64 %took)
  %until = load i64, ptr %untilp
  %length = load i64, ptr %lengthp
  %fourfold = shl i64 %slept, 2
  %others = sub i64 %n, 1
  %room = mul i64 %took, %others
  %late = icmp ugt i64 %fourfold, %room
  br i1 %late, label %tried, label %punctual
punctual:
  %half = lshr i64 %length, 1
  store i64 0, ptr %untilp
  store i64 %half, ptr %lengthp
  %doubt0 = load i64, ptr %doubtp
  %floor = call i64 @llvm.umax.i64(i64 %doubt0, i64 1)
  %calmer = sub i64 %floor, 1
  store i64 %calmer, ptr %doubtp
  ret void
tried:
  %one = load i64, ptr %onep
  %known = icmp ne i64 %one, 0
  %after = icmp ne i64 %until, 0
  %judge = and i1 %known, %after
  br i1 %judge, label %compare, label %first
compare:
  %faster = icmp ult i64 %one, %took
  %twice = shl i64 %length, 1
  br i1 %faster, label %begin, label %give_up
once_alone:
  store i64 -1, ptr %untilp
  br label %out
give_up:
  %rest = add i64 %now, $REST
  store i64 %rest, ptr %restp
  store i64 0, ptr %untilp
  store i64 0, ptr %lengthp
  ret void
first:
  %doubt1 = load i64, ptr %doubtp
  %more = add i64 %doubt1, 4
  %most = call i64 @llvm.umin.i64(i64 %more, i64 8)
  store i64 %most, ptr %doubtp
  %sure = icmp ugt i64 %most, 4
  br i1 %sure, label %ready, label %out
ready:
  %not_before = load i64, ptr %restp
  %resting = icmp ult i64 %now, %not_before
  br i1 %resting, label %out, label %willing
willing:
  br i1 %known, label %weigh, label %once_alone
weigh:
  %helps = icmp ult i64 %one, %best
  br i1 %helps, label %begin, label %give_up
begin:
  %wish = phi i64 [ %twice, %compare ], [ %length, %weigh ]
  %least = call i64 @llvm.umax.i64(i64 %wish, i64 $SHORTEST)
  %next = call i64 @llvm.umin.i64(i64 %least, i64 $LONGEST)
  %end = add i64 %now, %next
  store i64 %next, ptr %lengthp
  store i64 %end, ptr %untilp
  store i64 0, ptr %onep
  br label %out
out:
  ret void
}
"""
