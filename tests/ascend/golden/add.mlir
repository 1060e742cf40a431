#gm = #hivm.address_space<gm>
#ub = #hivm.address_space<ub>
#cbuf = #hivm.address_space<cbuf>
#cc = #hivm.address_space<cc>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @add(%g0: memref<5000xf32, #gm>, %g1: memref<5000xf32, #gm>, %g2: memref<5000xf32, #gm>)
      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c1024 = arith.constant 1024 : index
    %c5000 = arith.constant 5000 : index
    %v1 = hivm.hir.get_block_idx -> i64
    %core2 = arith.index_cast %v1 : i64 to index
    scf.for %i3 = %c0 to %c2 step %c1 {
      %buffer4 = memref.alloc() : memref<1024xf32, #ub> loc("a"("add.py":1:5))
      annotation.mark %buffer4 {hivm.multi_buffer = 2 : i32} : memref<1024xf32, #ub> loc("add.py":4:5)
      %buffer5 = memref.alloc() : memref<1024xf32, #ub> loc("c"("add.py":2:5))
      annotation.mark %buffer5 {hivm.multi_buffer = 2 : i32} : memref<1024xf32, #ub> loc("add.py":4:5)
      %buffer6 = memref.alloc() : memref<1024xf32, #ub> loc("o"("add.py":3:5))
      annotation.mark %buffer6 {hivm.multi_buffer = 2 : i32} : memref<1024xf32, #ub> loc("add.py":4:5)
      %v7 = arith.muli %i3, %c4 : index loc("add.py":5:5)
      %v8 = arith.addi %v7, %core2 : index loc("add.py":5:5)
      %v9 = arith.muli %v8, %c1024 : index loc("add.py":5:5)
      %v10 = arith.subi %c5000, %v9 : index loc("add.py":5:5)
      %v11 = arith.minsi %v10, %c1024 : index loc("add.py":5:5)
      %v12 = arith.maxsi %v11, %c0 : index loc("add.py":5:5)
      %view13 = memref.reinterpret_cast %g0 to offset: [%v9], sizes: [%v12], strides: [1] : memref<5000xf32, #gm> to memref<?xf32, strided<[1], offset: ?>, #gm> loc("add.py":5:5)
      %view14 = memref.reinterpret_cast %buffer4 to offset: [0], sizes: [%v12], strides: [1] : memref<1024xf32, #ub> to memref<?xf32, strided<[1]>, #ub> loc("add.py":5:5)
      hivm.hir.load ins(%view13 : memref<?xf32, strided<[1], offset: ?>, #gm>) outs(%view14 : memref<?xf32, strided<[1]>, #ub>) loc("add.py":5:5)
      %view15 = memref.reinterpret_cast %g1 to offset: [%v9], sizes: [%v12], strides: [1] : memref<5000xf32, #gm> to memref<?xf32, strided<[1], offset: ?>, #gm> loc("add.py":6:5)
      %view16 = memref.reinterpret_cast %buffer5 to offset: [0], sizes: [%v12], strides: [1] : memref<1024xf32, #ub> to memref<?xf32, strided<[1]>, #ub> loc("add.py":6:5)
      hivm.hir.load ins(%view15 : memref<?xf32, strided<[1], offset: ?>, #gm>) outs(%view16 : memref<?xf32, strided<[1]>, #ub>) loc("add.py":6:5)
      %view17 = memref.reinterpret_cast %buffer6 to offset: [0], sizes: [%v12], strides: [1] : memref<1024xf32, #ub> to memref<?xf32, strided<[1]>, #ub> loc("add.py":7:5)
      hivm.hir.vadd ins(%view14, %view16 : memref<?xf32, strided<[1]>, #ub>, memref<?xf32, strided<[1]>, #ub>) outs(%view17 : memref<?xf32, strided<[1]>, #ub>) loc("add.py":7:5)
      %view18 = memref.reinterpret_cast %g2 to offset: [%v9], sizes: [%v12], strides: [1] : memref<5000xf32, #gm> to memref<?xf32, strided<[1], offset: ?>, #gm> loc("add.py":8:5)
      hivm.hir.store ins(%view17 : memref<?xf32, strided<[1]>, #ub>) outs(%view18 : memref<?xf32, strided<[1], offset: ?>, #gm>) loc("add.py":8:5)
    } loc("add.py":4:5)
    return loc("add.py":4:5)
  }
}
