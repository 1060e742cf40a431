#gm = #hivm.address_space<gm>
#ub = #hivm.address_space<ub>
#cbuf = #hivm.address_space<cbuf>
#cc = #hivm.address_space<cc>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @zoo(%g0: memref<300x40xf32, #gm>, %g1: memref<300x40xi32, #gm>, %g2: memref<75xi32, #gm>, %g3: memref<300x40xf32, #gm>, %g4: memref<300x40xf16, #gm>, %s0: f32)
      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2_f32 = arith.constant 0.5 : f32
    %c3_i32 = arith.constant 7 : i32
    %c75 = arith.constant 75 : index
    %c160 = arith.constant 160 : index
    %c6_i32 = arith.constant 28 : i32
    %c3 = arith.constant 3 : index
    %v1 = hivm.hir.get_block_idx -> i64
    %core2 = arith.index_cast %v1 : i64 to index
    %buffer3 = memref.alloc() : memref<192xf32, #ub> loc("r"("zoo.py":3:5))
    %buffer4 = memref.alloc() : memref<48xf32, #ub> loc("line"("zoo.py":9:5))
    %buffer5 = memref.alloc() : memref<192xf32, #ub> loc("level"("zoo.py":11:5))
    %buffer6 = memref.alloc() : memref<8xi32, #ub> loc("seven"("zoo.py":12:5))
    %view7 = memref.reinterpret_cast %buffer3 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xf32, #ub> to memref<4x40xf32, strided<[48, 1]>, #ub> loc("zoo.py":14:5)
    hivm.hir.varange offset[%c0] strides[%c0, %c1] outs(%view7 : memref<4x40xf32, strided<[48, 1]>, #ub>) loc("zoo.py":14:5)
    %view8 = memref.reinterpret_cast %buffer4 to offset: [0], sizes: [1, 40], strides: [48, 1] : memref<48xf32, #ub> to memref<1x40xf32, strided<[48, 1]>, #ub> loc("zoo.py":15:5)
    hivm.hir.vbrc ins(%c2_f32 : f32) outs(%view8 : memref<1x40xf32, strided<[48, 1]>, #ub>) loc("zoo.py":15:5)
    %view9 = memref.reinterpret_cast %buffer5 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xf32, #ub> to memref<4x40xf32, strided<[48, 1]>, #ub> loc("zoo.py":16:5)
    %view10 = memref.reinterpret_cast %buffer4 to offset: [0], sizes: [1, 40], strides: [40, 1] : memref<48xf32, #ub> to memref<1x40xf32, strided<[40, 1]>, #ub> loc("zoo.py":16:5)
    hivm.hir.vbrc ins(%view10 : memref<1x40xf32, strided<[40, 1]>, #ub>) outs(%view9 : memref<4x40xf32, strided<[48, 1]>, #ub>) broadcast_dims = [0] loc("zoo.py":16:5)
    hivm.hir.vbrc ins(%c3_i32 : i32) outs(%buffer6 : memref<8xi32, #ub>) loc("zoo.py":17:5)
    %v12 = scf.for %i11 = %c0 to %c75 step %c1 iter_args(%v13 = %c0) -> (index) {
      %buffer14 = memref.alloc() : memref<192xf32, #ub> loc("f"("zoo.py":1:5))
      annotation.mark %buffer14 {hivm.multi_buffer = 3 : i32} : memref<192xf32, #ub> loc("zoo.py":18:5)
      %buffer15 = memref.alloc() : memref<192xi32, #ub> loc("words"("zoo.py":4:5))
      %buffer16 = memref.alloc() : memref<1024xi1, #ub> loc("mask"("zoo.py":6:5))
      %buffer17 = memref.alloc() : memref<1024xi1, #ub> loc("other"("zoo.py":7:5))
      %buffer18 = memref.alloc() : memref<192xf32, #ub> loc("g"("zoo.py":2:5))
      %buffer19 = memref.alloc() : memref<192xi32, #ub> loc("part"("zoo.py":5:5))
      %buffer20 = memref.alloc() : memref<4xf32, #ub> loc("col"("zoo.py":10:5))
      %buffer21 = memref.alloc() : memref<192xf16, #ub> loc("h"("zoo.py":8:5))
      %v22 = memref.load %g2[%i11] : memref<75xi32, #gm> loc("zoo.py":19:5)
      %v23 = arith.index_cast %v22 : i32 to index loc("zoo.py":19:5)
      %v24 = arith.muli %v23, %c160 : index loc("zoo.py":19:5)
      %view25 = memref.reinterpret_cast %g0 to offset: [%v24], sizes: [4, 40], strides: [40, 1] : memref<300x40xf32, #gm> to memref<4x40xf32, strided<[40, 1], offset: ?>, #gm> loc("zoo.py":19:5)
      %view26 = memref.reinterpret_cast %buffer14 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xf32, #ub> to memref<4x40xf32, strided<[48, 1]>, #ub> loc("zoo.py":19:5)
      hivm.hir.load ins(%view25 : memref<4x40xf32, strided<[40, 1], offset: ?>, #gm>) outs(%view26 : memref<4x40xf32, strided<[48, 1]>, #ub>) loc("zoo.py":19:5)
      %view27 = memref.reinterpret_cast %g1 to offset: [%v24], sizes: [4, 40], strides: [40, 1] : memref<300x40xi32, #gm> to memref<4x40xi32, strided<[40, 1], offset: ?>, #gm> loc("zoo.py":20:5)
      %view28 = memref.reinterpret_cast %buffer15 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xi32, #ub> to memref<4x40xi32, strided<[48, 1]>, #ub> loc("zoo.py":20:5)
      hivm.hir.load ins(%view27 : memref<4x40xi32, strided<[40, 1], offset: ?>, #gm>) outs(%view28 : memref<4x40xi32, strided<[48, 1]>, #ub>) loc("zoo.py":20:5)
      %view29 = memref.reinterpret_cast %buffer16 to offset: [0], sizes: [4, 40], strides: [256, 1] : memref<1024xi1, #ub> to memref<4x40xi1, strided<[256, 1]>, #ub> loc("zoo.py":21:5)
      %view30 = memref.reinterpret_cast %buffer3 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xf32, #ub> to memref<4x40xf32, strided<[48, 1]>, #ub> loc("zoo.py":21:5)
      hivm.hir.vcmp ins(%view26, %view30 : memref<4x40xf32, strided<[48, 1]>, #ub>, memref<4x40xf32, strided<[48, 1]>, #ub>) outs(%view29 : memref<4x40xi1, strided<[256, 1]>, #ub>) compare_mode = #hivm.compare_mode<lt> loc("zoo.py":21:5)
      %view31 = memref.reinterpret_cast %buffer17 to offset: [0], sizes: [4, 40], strides: [256, 1] : memref<1024xi1, #ub> to memref<4x40xi1, strided<[256, 1]>, #ub> loc("zoo.py":22:5)
      %view32 = memref.reinterpret_cast %buffer5 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xf32, #ub> to memref<4x40xf32, strided<[48, 1]>, #ub> loc("zoo.py":22:5)
      hivm.hir.vcmp ins(%view26, %view32 : memref<4x40xf32, strided<[48, 1]>, #ub>, memref<4x40xf32, strided<[48, 1]>, #ub>) outs(%view31 : memref<4x40xi1, strided<[256, 1]>, #ub>) compare_mode = #hivm.compare_mode<gt> loc("zoo.py":22:5)
      hivm.hir.vand ins(%view29, %view31 : memref<4x40xi1, strided<[256, 1]>, #ub>, memref<4x40xi1, strided<[256, 1]>, #ub>) outs(%view29 : memref<4x40xi1, strided<[256, 1]>, #ub>) loc("zoo.py":23:5)
      %view33 = memref.reinterpret_cast %buffer18 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xf32, #ub> to memref<4x40xf32, strided<[48, 1]>, #ub> loc("zoo.py":24:5)
      hivm.hir.vsel ins(%view29, %view26, %s0 : memref<4x40xi1, strided<[256, 1]>, #ub>, memref<4x40xf32, strided<[48, 1]>, #ub>, f32) outs(%view33 : memref<4x40xf32, strided<[48, 1]>, #ub>) loc("zoo.py":24:5)
      %view34 = memref.reinterpret_cast %buffer19 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xi32, #ub> to memref<4x40xi32, strided<[48, 1]>, #ub> loc("zoo.py":25:5)
      hivm.hir.vshr ins(%view28, %c6_i32 : memref<4x40xi32, strided<[48, 1]>, #ub>, i32) outs(%view34 : memref<4x40xi32, strided<[48, 1]>, #ub>) round : false loc("zoo.py":25:5)
      %view35 = memref.reinterpret_cast %buffer6 to offset: [0], sizes: [1, 1], strides: [1, 1] : memref<8xi32, #ub> to memref<1x1xi32, strided<[1, 1]>, #ub> loc("zoo.py":26:5)
      hivm.hir.vand ins(%view34, %view35 : memref<4x40xi32, strided<[48, 1]>, #ub>, memref<1x1xi32, strided<[1, 1]>, #ub>) outs(%view34 : memref<4x40xi32, strided<[48, 1]>, #ub>) broadcast = [0, 1] loc("zoo.py":26:5)
      hivm.hir.vcast ins(%view34 : memref<4x40xi32, strided<[48, 1]>, #ub>) outs(%view26 : memref<4x40xf32, strided<[48, 1]>, #ub>) loc("zoo.py":27:5)
      hivm.hir.vadd ins(%view33, %view26 : memref<4x40xf32, strided<[48, 1]>, #ub>, memref<4x40xf32, strided<[48, 1]>, #ub>) outs(%view33 : memref<4x40xf32, strided<[48, 1]>, #ub>) loc("zoo.py":28:5)
      %view36 = memref.reinterpret_cast %buffer20 to offset: [0], sizes: [4, 1], strides: [1, 1] : memref<4xf32, #ub> to memref<4x1xf32, strided<[1, 1]>, #ub> loc("zoo.py":29:5)
      hivm.hir.vreduce <max> ins(%view33 : memref<4x40xf32, strided<[48, 1]>, #ub>) outs(%view36 : memref<4x1xf32, strided<[1, 1]>, #ub>) reduce_dims = [1] loc("zoo.py":29:5)
      hivm.hir.vmul ins(%view36, %view33 : memref<4x1xf32, strided<[1, 1]>, #ub>, memref<4x40xf32, strided<[48, 1]>, #ub>) outs(%view33 : memref<4x40xf32, strided<[48, 1]>, #ub>) broadcast = [1] loc("zoo.py":30:5)
      %v37 = arith.index_cast %v13 : index to i32 loc("zoo.py":31:5)
      %v38 = arith.sitofp %v37 : i32 to f32 loc("zoo.py":31:5)
      hivm.hir.vadd ins(%view33, %v38 : memref<4x40xf32, strided<[48, 1]>, #ub>, f32) outs(%view33 : memref<4x40xf32, strided<[48, 1]>, #ub>) loc("zoo.py":31:5)
      %view39 = memref.reinterpret_cast %g3 to offset: [%v24], sizes: [4, 40], strides: [40, 1] : memref<300x40xf32, #gm> to memref<4x40xf32, strided<[40, 1], offset: ?>, #gm> loc("zoo.py":32:5)
      hivm.hir.store ins(%view33 : memref<4x40xf32, strided<[48, 1]>, #ub>) outs(%view39 : memref<4x40xf32, strided<[40, 1], offset: ?>, #gm>) loc("zoo.py":32:5)
      %view40 = memref.reinterpret_cast %buffer21 to offset: [0], sizes: [4, 40], strides: [48, 1] : memref<192xf16, #ub> to memref<4x40xf16, strided<[48, 1]>, #ub> loc("zoo.py":33:5)
      hivm.hir.vcast ins(%view33 : memref<4x40xf32, strided<[48, 1]>, #ub>) outs(%view40 : memref<4x40xf16, strided<[48, 1]>, #ub>) round_mode = #hivm.round_mode<rint> loc("zoo.py":33:5)
      %v41 = arith.remsi %i11, %c3 : index loc("zoo.py":35:5)
      %v42 = arith.cmpi ne, %v41, %c1 : index loc("zoo.py":35:5)
      scf.if %v42 {
        %view43 = memref.reinterpret_cast %g4 to offset: [%v24], sizes: [4, 40], strides: [40, 1] : memref<300x40xf16, #gm> to memref<4x40xf16, strided<[40, 1], offset: ?>, #gm> loc("zoo.py":34:5)
        hivm.hir.store ins(%view40 : memref<4x40xf16, strided<[48, 1]>, #ub>) outs(%view43 : memref<4x40xf16, strided<[40, 1], offset: ?>, #gm>) loc("zoo.py":34:5)
      } loc("zoo.py":35:5)
      %v44 = arith.addi %v13, %c1 : index loc("zoo.py":36:5)
      scf.yield %v44 : index loc("zoo.py":36:5)
    } loc("zoo.py":18:5)
    return loc("zoo.py":18:5)
  }
}
