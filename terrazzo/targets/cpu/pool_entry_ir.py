"""How a caller enters the worker pool, as generated code: the lock, the Ctrl-C guard, the builtin.

Memory layouts and the functions called here (`post`, `execute`, futexes) are those of pool_ir.py,
of whose module this is a part.
"""

ENTRY_IR = r"""
declare i32 @sigaction(i32, ptr, ptr)
; Ctrl-C while the main thread is in here: Python's own handler only notes the signal, so we set the
; cancel word first and then call it. One guard at a time: only the main thread asks for one. Our
; handler stays in place between programs (one system call less each time), and then only passes on.
@guard_control = internal global ptr null
@guard_chain = internal global ptr null
@guard_old = internal global [256 x i8] zeroinitializer, align 16

define internal void @on_interrupt(i32 %signal, ptr %info, ptr %context) nounwind {
entry:
  %control = load ptr, ptr @guard_control
  %idle = icmp eq ptr %control, null
  br i1 %idle, label %pass, label %set
set:
  %x = atomicrmw or ptr %control, i32 2 seq_cst
  br label %pass
pass:
  %chain = load ptr, ptr @guard_chain
  call void %chain(i32 %signal, ptr %info, ptr %context)
  ret void
}

; struct sigaction of glibc and musl on 64-bit Linux starts with the handler and has 152 bytes.
define internal i1 @guard(ptr %control) nounwind {
entry:
  %r0 = call i32 @sigaction(i32 2, ptr null, ptr @guard_old)
  %old = load ptr, ptr @guard_old
  %ours = icmp eq ptr %old, @on_interrupt
  br i1 %ours, label %arm, label %look
look:
  %number = ptrtoint ptr %old to i64
  %handled = icmp ugt i64 %number, 1       ; 0: default (the process ends), 1: ignored
  br i1 %handled, label %install, label %none
install:
  store ptr %old, ptr @guard_chain
  store ptr @on_interrupt, ptr @guard_old
  %r1 = call i32 @sigaction(i32 2, ptr @guard_old, ptr null)
  br label %arm
arm:
  store volatile ptr %control, ptr @guard_control
  ret i1 true
none:
  ret i1 false
}

define internal void @unguard(ptr %control) nounwind {
  store volatile ptr null, ptr @guard_control
  %x = atomicrmw and ptr %control, i32 -3 seq_cst
  ret void
}

; Runs a program (count >= 1, 1 <= threads <= workers + 1); by whoever holds the lock.
; Returns entries done * 4 + (0 all done, 1 cancelled, 2 fault).
define internal i64 @run(ptr %pool, ptr %program) nounwind {
entry:
  %p2 = getelementptr i64, ptr %program, i64 2
  %n = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %program, i64 3
  %control = load ptr, ptr %p3
  %p5 = getelementptr i64, ptr %program, i64 5
  %guarded = load i64, ptr %p5
  %wanted = icmp ne i64 %guarded, 0
  br i1 %wanted, label %who, label %check
who:
  %main = getelementptr i64, ptr %pool, i64 2
  %main1 = load i64, ptr %main
  %self = call i64 @pthread_self()
  %ismain = icmp eq i64 %main1, %self
  br i1 %ismain, label %arm, label %check
arm:
  %armed1 = call i1 @guard(ptr %control)
  br label %check
check:
  %armed = phi i1 [ false, %entry ], [ false, %who ], [ %armed1, %arm ]
  %words0 = load atomic i64, ptr %control monotonic, align 8
  %already = icmp ne i64 %words0, 0
  br i1 %already, label %judge, label %go
go:
  store ptr %program, ptr %pool
  %p14 = getelementptr i64, ptr %program, i64 14
  %may = load i64, ptr %p14
  %fixed = icmp eq i64 %may, 0
  %single = icmp eq i64 %n, 1
  %simply = or i1 %single, %fixed
  br i1 %simply, label %simple, label %choose
simple:
  call void @post(ptr %pool, i64 %n)
  %ran1 = call i64 @execute(ptr %pool, ptr %program, i32 0, i64 %n)
  br label %judge
choose:
  %t0 = call i64 @now()
  %alone = call i1 @alone(ptr %program, i64 %t0)
  %on = select i1 %alone, i64 1, i64 %n
  %sleptp = getelementptr i64, ptr %pool, i64 4
  %slept0 = load atomic i64, ptr %sleptp monotonic, align 8
  call void @post(ptr %pool, i64 %on)
  %ran = call i64 @execute(ptr %pool, ptr %program, i32 0, i64 %on)
  %slept1 = load atomic i64, ptr %sleptp monotonic, align 8
  %slept = sub i64 %slept1, %slept0
  %t1 = call i64 @now()
  %took = sub i64 %t1, %t0
  call void @learn(ptr %program, i64 %n, i64 %on, i64 %took, i64 %t1, i64 %slept)
  br label %judge
judge:
  %done = phi i64 [ 0, %check ], [ %ran1, %simple ], [ %ran, %choose ]
  %p1 = getelementptr i64, ptr %program, i64 1
  %count = load i64, ptr %p1
  %words = load atomic i64, ptr %control monotonic, align 8
  %faultword = lshr i64 %words, 32
  %fault = icmp ne i64 %faultword, 0
  %short = icmp ult i64 %done, %count
  ; A cancel that came too late to skip anything is no cancel: the program is complete.
  %cancel = select i1 %short, i64 1, i64 0
  %code = select i1 %fault, i64 2, i64 %cancel
  %scaled = shl i64 %done, 2
  %status = or i64 %scaled, %code
  br i1 %armed, label %disarm, label %out
disarm:
  call void @unguard(ptr %control)
  br label %out
out:
  ret i64 %status
}

; Lock of the pool; callers take turns (Drepper, "Futexes are tricky", 2011: his third mutex).
define i1 @try_lock(ptr %pool) nounwind {
  %word = getelementptr i8, ptr %pool, i64 24
  %pair = cmpxchg ptr %word, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  ret i1 %got
}

define internal void @lock(ptr %pool) nounwind {
entry:
  %word = getelementptr i8, ptr %pool, i64 24
  %at_once = call i1 @try_lock(ptr %pool)
  br i1 %at_once, label %out, label %want
want:
  %old = atomicrmw xchg ptr %word, i32 2 acquire
  %free = icmp eq i32 %old, 0
  br i1 %free, label %out, label %sleep
sleep:
  call void @futex_wait(ptr %word, i32 2)
  br label %want
out:
  ret void
}

define void @unlock(ptr %pool) nounwind {
entry:
  %word = getelementptr i8, ptr %pool, i64 24
  %old = atomicrmw xchg ptr %word, i32 0 release
  %wanted = icmp eq i32 %old, 2
  br i1 %wanted, label %wake, label %out
wake:
  call void @futex_wake(ptr %word, i32 1)
  br label %out
out:
  ret void
}

declare i64 @pthread_self()
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

; Runs a program and those that follow it, when it is our turn, as a builtin of Python (builtin.py):
; the address comes as an int; the GIL is dropped meanwhile. Returns run's result + 2^48 * programs
; complete before; -1, with nothing run, if there are fewer threads than a program wants.
define ptr @launch(ptr %address, ptr %ignored) nounwind {
entry:
  %start = call ptr @PyLong_AsVoidPtr(ptr %address)
  %thread = call ptr @PyEval_SaveThread()
  %p8 = getelementptr i64, ptr %start, i64 8
  %pool = load ptr, ptr %p8
  call void @lock(ptr %pool)
  %arep = getelementptr i64, ptr %pool, i64 1
  %are = load i64, ptr %arep
  br label %one
one:
  %program = phi ptr [ %start, %entry ], [ %next, %more ]
  %before = phi i64 [ 0, %entry ], [ %after, %more ]
  %p2 = getelementptr i64, ptr %program, i64 2
  %wanted = load i64, ptr %p2
  %enough = icmp ule i64 %wanted, %are
  br i1 %enough, label %count, label %end
count:
  %p1 = getelementptr i64, ptr %program, i64 1
  %phases = load i64, ptr %p1
  %none = icmp eq i64 %phases, 0
  br i1 %none, label %then, label %go
go:
  %ran = call i64 @run(ptr %pool, ptr %program)
  br label %then
then:
  %did = phi i64 [ 0, %count ], [ %ran, %go ]
  %status = or i64 %before, %did
  %code = and i64 %did, 3
  %well = icmp eq i64 %code, 0
  %p9 = getelementptr i64, ptr %program, i64 9
  %next = load ptr, ptr %p9
  %last = icmp eq ptr %next, null
  %on = xor i1 %last, true
  %both = and i1 %well, %on
  br i1 %both, label %more, label %end
more:
  %after = add i64 %before, 281474976710656
  br label %one
end:
  %result = phi i64 [ -1, %one ], [ %status, %then ]
  call void @unlock(ptr %pool)
  call void @PyEval_RestoreThread(ptr %thread)
  %boxed = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %boxed
}
"""
