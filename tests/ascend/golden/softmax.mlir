#gm = #hivm.address_space<gm>
#ub = #hivm.address_space<ub>
#cbuf = #hivm.address_space<cbuf>
#cc = #hivm.address_space<cc>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @softmax(%g0: memref<37x200xf16, #gm>, %g1: memref<37x200xf16, #gm>)
      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %c0 = arith.constant 0 : index
    %c3 = arith.constant 3 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c8 = arith.constant 8 : index
    %c200 = arith.constant 200 : index
    %c37 = arith.constant 37 : index
    %v1 = hivm.hir.get_block_idx -> i64
    %core2 = arith.index_cast %v1 : i64 to index
    scf.for %i3 = %c0 to %c3 step %c1 {
      %buffer4 = memref.alloc() : memref<1664xf16, #ub> loc("h"("softmax.py":1:5))
      annotation.mark %buffer4 {hivm.multi_buffer = 2 : i32} : memref<1664xf16, #ub> loc("softmax.py":5:5)
      %buffer5 = memref.alloc() : memref<1664xf32, #ub> loc("f"("softmax.py":2:5))
      %buffer6 = memref.alloc() : memref<8xf32, #ub> loc("m"("softmax.py":3:5))
      %buffer7 = memref.alloc() : memref<8xf32, #ub> loc("s"("softmax.py":4:5))
      %v8 = arith.muli %i3, %c2 : index loc("softmax.py":6:5)
      %v9 = arith.addi %v8, %core2 : index loc("softmax.py":6:5)
      %v10 = arith.muli %v9, %c8 : index loc("softmax.py":6:5)
      %v11 = arith.muli %v10, %c200 : index loc("softmax.py":6:5)
      %v12 = arith.subi %c37, %v10 : index loc("softmax.py":6:5)
      %v13 = arith.minsi %v12, %c8 : index loc("softmax.py":6:5)
      %v14 = arith.maxsi %v13, %c0 : index loc("softmax.py":6:5)
      %view15 = memref.reinterpret_cast %g0 to offset: [%v11], sizes: [%v14, 200], strides: [200, 1] : memref<37x200xf16, #gm> to memref<?x200xf16, strided<[200, 1], offset: ?>, #gm> loc("softmax.py":6:5)
      %view16 = memref.reinterpret_cast %buffer4 to offset: [0], sizes: [%v14, 200], strides: [208, 1] : memref<1664xf16, #ub> to memref<?x200xf16, strided<[208, 1]>, #ub> loc("softmax.py":6:5)
      hivm.hir.load ins(%view15 : memref<?x200xf16, strided<[200, 1], offset: ?>, #gm>) outs(%view16 : memref<?x200xf16, strided<[208, 1]>, #ub>) loc("softmax.py":6:5)
      %view17 = memref.reinterpret_cast %buffer5 to offset: [0], sizes: [%v14, 200], strides: [208, 1] : memref<1664xf32, #ub> to memref<?x200xf32, strided<[208, 1]>, #ub> loc("softmax.py":7:5)
      hivm.hir.vcast ins(%view16 : memref<?x200xf16, strided<[208, 1]>, #ub>) outs(%view17 : memref<?x200xf32, strided<[208, 1]>, #ub>) round_mode = #hivm.round_mode<rint> loc("softmax.py":7:5)
      %view18 = memref.reinterpret_cast %buffer6 to offset: [0], sizes: [%v14, 1], strides: [1, 1] : memref<8xf32, #ub> to memref<?x1xf32, strided<[1, 1]>, #ub> loc("softmax.py":8:5)
      hivm.hir.vreduce <max> ins(%view17 : memref<?x200xf32, strided<[208, 1]>, #ub>) outs(%view18 : memref<?x1xf32, strided<[1, 1]>, #ub>) reduce_dims = [1] loc("softmax.py":8:5)
      hivm.hir.vsub ins(%view17, %view18 : memref<?x200xf32, strided<[208, 1]>, #ub>, memref<?x1xf32, strided<[1, 1]>, #ub>) outs(%view17 : memref<?x200xf32, strided<[208, 1]>, #ub>) broadcast = [1] loc("softmax.py":9:5)
      hivm.hir.vexp ins(%view17 : memref<?x200xf32, strided<[208, 1]>, #ub>) outs(%view17 : memref<?x200xf32, strided<[208, 1]>, #ub>) loc("softmax.py":10:5)
      %view19 = memref.reinterpret_cast %buffer7 to offset: [0], sizes: [%v14, 1], strides: [1, 1] : memref<8xf32, #ub> to memref<?x1xf32, strided<[1, 1]>, #ub> loc("softmax.py":11:5)
      hivm.hir.vreduce <sum> ins(%view17 : memref<?x200xf32, strided<[208, 1]>, #ub>) outs(%view19 : memref<?x1xf32, strided<[1, 1]>, #ub>) reduce_dims = [1] loc("softmax.py":11:5)
      hivm.hir.vdiv ins(%view17, %view19 : memref<?x200xf32, strided<[208, 1]>, #ub>, memref<?x1xf32, strided<[1, 1]>, #ub>) outs(%view17 : memref<?x200xf32, strided<[208, 1]>, #ub>) broadcast = [1] loc("softmax.py":12:5)
      hivm.hir.vcast ins(%view17 : memref<?x200xf32, strided<[208, 1]>, #ub>) outs(%view16 : memref<?x200xf16, strided<[208, 1]>, #ub>) round_mode = #hivm.round_mode<rint> loc("softmax.py":13:5)
      %view20 = memref.reinterpret_cast %g1 to offset: [%v11], sizes: [%v14, 200], strides: [200, 1] : memref<37x200xf16, #gm> to memref<?x200xf16, strided<[200, 1], offset: ?>, #gm> loc("softmax.py":14:5)
      hivm.hir.store ins(%view16 : memref<?x200xf16, strided<[208, 1]>, #ub>) outs(%view20 : memref<?x200xf16, strided<[200, 1], offset: ?>, #gm>) loc("softmax.py":14:5)
    } loc("softmax.py":5:5)
    return loc("softmax.py":5:5)
  }
}
