#gm = #hivm.address_space<gm>
#ub = #hivm.address_space<ub>
#cbuf = #hivm.address_space<cbuf>
#cc = #hivm.address_space<cc>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @ring(%g0: memref<640xf32, #gm>, %g1: memref<640xf32, #gm>, %g2: memref<1xf32, #gm>)
      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %c1 = arith.constant 1 : index
    %c1_f32 = arith.constant 0.0 : f32
    %c0 = arith.constant 0 : index
    %c10 = arith.constant 10 : index
    %c64 = arith.constant 64 : index
    %c2 = arith.constant 2 : index
    %c6_f32 = arith.constant 1.0 : f32
    %v1 = hivm.hir.get_block_idx -> i64
    %core2 = arith.index_cast %v1 : i64 to index
    %v3 = arith.addi %core2, %c1 : index
    %v4 = arith.minsi %v3, %c1 : index
    %buffer5 = memref.alloc() : memref<8xf32, #ub> loc("run"("ring.py":4:5))
    %buffer6 = memref.alloc() : memref<128xf32, #ub> loc("held"("ring.py":1:5))
    %view7 = memref.reinterpret_cast %buffer5 to offset: [0], sizes: [%v4], strides: [1] : memref<8xf32, #ub> to memref<?xf32, strided<[1]>, #ub> loc("ring.py":5:5)
    hivm.hir.vbrc ins(%c1_f32 : f32) outs(%view7 : memref<?xf32, strided<[1]>, #ub>) loc("ring.py":5:5)
    scf.for %i8 = %c0 to %c10 step %c1 {
      %v9 = arith.muli %i8, %c64 : index loc("ring.py":7:5)
      %view10 = memref.reinterpret_cast %g0 to offset: [%v9], sizes: [64], strides: [1] : memref<640xf32, #gm> to memref<64xf32, strided<[1], offset: ?>, #gm> loc("ring.py":7:5)
      %v11 = arith.remsi %i8, %c2 : index loc("ring.py":7:5)
      %v12 = arith.muli %v11, %c64 : index loc("ring.py":7:5)
      %view13 = memref.reinterpret_cast %buffer6 to offset: [%v12], sizes: [64], strides: [1] : memref<128xf32, #ub> to memref<64xf32, strided<[1], offset: ?>, #ub> loc("ring.py":7:5)
      hivm.hir.load ins(%view10 : memref<64xf32, strided<[1], offset: ?>, #gm>) outs(%view13 : memref<64xf32, strided<[1], offset: ?>, #ub>) loc("ring.py":7:5)
      %v14 = arith.cmpi slt, %c0, %i8 : index loc("ring.py":12:5)
      scf.if %v14 {
        %buffer15 = memref.alloc() : memref<64xf32, #ub> loc("out"("ring.py":2:5))
        annotation.mark %buffer15 {hivm.multi_buffer = 2 : i32} : memref<64xf32, #ub> loc("ring.py":12:5)
        %buffer16 = memref.alloc() : memref<8xf32, #ub> loc("part"("ring.py":3:5))
        %v17 = arith.subi %i8, %c1 : index loc("ring.py":8:5)
        %v18 = arith.remsi %v17, %c2 : index loc("ring.py":8:5)
        %v19 = arith.cmpi slt, %v18, %c0 : index loc("ring.py":8:5)
        %v20 = arith.addi %v18, %c2 : index loc("ring.py":8:5)
        %v21 = arith.select %v19, %v20, %v18 : index loc("ring.py":8:5)
        %v22 = arith.muli %v21, %c64 : index loc("ring.py":8:5)
        %view23 = memref.reinterpret_cast %buffer6 to offset: [%v22], sizes: [64], strides: [1] : memref<128xf32, #ub> to memref<64xf32, strided<[1], offset: ?>, #ub> loc("ring.py":8:5)
        hivm.hir.vadd ins(%view23, %c6_f32 : memref<64xf32, strided<[1], offset: ?>, #ub>, f32) outs(%buffer15 : memref<64xf32, #ub>) loc("ring.py":8:5)
        %view24 = memref.reinterpret_cast %g1 to offset: [%v9], sizes: [64], strides: [1] : memref<640xf32, #gm> to memref<64xf32, strided<[1], offset: ?>, #gm> loc("ring.py":9:5)
        hivm.hir.store ins(%buffer15 : memref<64xf32, #ub>) outs(%view24 : memref<64xf32, strided<[1], offset: ?>, #gm>) loc("ring.py":9:5)
        %view25 = memref.reinterpret_cast %buffer16 to offset: [0], sizes: [1], strides: [1] : memref<8xf32, #ub> to memref<1xf32, strided<[1]>, #ub> loc("ring.py":10:5)
        hivm.hir.vreduce <sum> ins(%buffer15 : memref<64xf32, #ub>) outs(%view25 : memref<1xf32, strided<[1]>, #ub>) reduce_dims = [0] loc("ring.py":10:5)
        %view26 = memref.reinterpret_cast %buffer16 to offset: [0], sizes: [%v4], strides: [1] : memref<8xf32, #ub> to memref<?xf32, strided<[1]>, #ub> loc("ring.py":11:5)
        hivm.hir.vadd ins(%view7, %view26 : memref<?xf32, strided<[1]>, #ub>, memref<?xf32, strided<[1]>, #ub>) outs(%view7 : memref<?xf32, strided<[1]>, #ub>) loc("ring.py":11:5)
      } loc("ring.py":12:5)
    } loc("ring.py":6:5)
    %view27 = memref.reinterpret_cast %buffer5 to offset: [0], sizes: [1], strides: [1] : memref<8xf32, #ub> to memref<1xf32, strided<[1]>, #ub> loc("ring.py":13:5)
    %view28 = memref.reinterpret_cast %g2 to offset: [0], sizes: [1], strides: [1] : memref<1xf32, #gm> to memref<1xf32, strided<[1]>, #gm> loc("ring.py":13:5)
    hivm.hir.store ins(%view27 : memref<1xf32, strided<[1]>, #ub>) outs(%view28 : memref<1xf32, strided<[1]>, #gm>) loc("ring.py":13:5)
    return loc("ring.py":13:5)
  }
}
