"""A worker that is woken shall not run on its caller's core, as generated code.

The scheduler likes to wake a thread where the thread runs that wakes it, and takes some 50 ms to
notice that both are busy: a kernel of 1 to 5 ms is done by then, on one core, in the time of one
thread (512 cubed, f32, on 2 cores: 2.1 ms, apart 1.4). So the caller takes its own core from the
CPUs that the worker may use before it wakes it, or when it sees it wait on that core; the worker
takes its CPUs back as soon as it runs. What the user allowed is never widened, the caller is never
bound, and where the worker may use no other core nothing is done.

    mailbox (pool_ir.py): 12 i32 CPU the worker began to wait on | 24 i64 its number, 0 before it
                          runs | 32 i64 its CPUs are narrowed 0/1
    masks:                pool + $MASKS + 128 * tid: the CPUs to give back
"""

APART_IR = r"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; For the caller, on CPU `own`: worker `t` shall run somewhere else.
define internal void @keep_off(ptr %pool, ptr %mail, i64 %t, i32 %own) nounwind {
entry:
  %narrow = alloca [$MASK_BYTES x i8], align 8
  %numberp = getelementptr i8, ptr %mail, i64 24
  %number = load atomic i64, ptr %numberp acquire, align 8
  %runs = icmp ne i64 %number, 0
  %known = icmp sge i32 %own, 0
  %few = icmp ult i32 %own, $MASK_BITS
  %some = and i1 %runs, %known
  %may = and i1 %some, %few
  br i1 %may, label %look, label %out
look:
  %flagp = getelementptr i8, ptr %mail, i64 32
  %flag = load atomic i64, ptr %flagp acquire, align 8
  %scaled = mul i64 %t, $MASK_BYTES
  %off = add i64 %scaled, $MASKS
  %mask = getelementptr i8, ptr %pool, i64 %off
  %narrowed = icmp ne i64 %flag, 0
  br i1 %narrowed, label %take, label %ask
ask:
  %told = call i1 @get_cpus(i64 %number, ptr %mask)
  br i1 %told, label %take, label %out
take:
  call void @llvm.memcpy.p0.p0.i64(ptr %narrow, ptr %mask, i64 $MASK_BYTES, i1 false)
  %own64 = zext i32 %own to i64
  %at = lshr i64 %own64, 3
  %bit = and i64 %own64, 7
  %one = shl i64 1, %bit
  %one8 = trunc i64 %one to i8
  %keep = xor i8 %one8, -1
  %bytep = getelementptr i8, ptr %narrow, i64 %at
  %byte = load i8, ptr %bytep
  %less = and i8 %byte, %keep
  store i8 %less, ptr %bytep
  br label %count
count:
  %i = phi i64 [ 0, %take ], [ %j, %count ]
  %any = phi i64 [ 0, %take ], [ %more, %count ]
  %wordp = getelementptr i64, ptr %narrow, i64 %i
  %word = load i64, ptr %wordp
  %more = or i64 %any, %word
  %j = add i64 %i, 1
  %left = icmp ult i64 %j, $MASK_WORDS
  br i1 %left, label %count, label %decide
decide:
  %other = icmp ne i64 %more, 0
  br i1 %other, label %set, label %out
set:
  store atomic i64 1, ptr %flagp release, align 8
  call void @set_cpus(i64 %number, ptr %narrow)
  br label %out
out:
  ret void
}

; For the worker, once it runs: back to the CPUs it had.
define internal void @spread(ptr %pool, ptr %mail, i32 %tid) nounwind {
entry:
  %flagp = getelementptr i8, ptr %mail, i64 32
  %flag = load atomic i64, ptr %flagp acquire, align 8
  %narrowed = icmp ne i64 %flag, 0
  br i1 %narrowed, label %back, label %out
back:
  %t = zext i32 %tid to i64
  %scaled = mul i64 %t, $MASK_BYTES
  %off = add i64 %scaled, $MASKS
  %mask = getelementptr i8, ptr %pool, i64 %off
  call void @set_cpus(i64 0, ptr %mask)
  store atomic i64 0, ptr %flagp release, align 8
  br label %out
out:
  ret void
}
"""
