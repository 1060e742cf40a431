#gm = #hivm.address_space<gm>
#ub = #hivm.address_space<ub>
#cbuf = #hivm.address_space<cbuf>
#cc = #hivm.address_space<cc>
module attributes {hivm.module_core_type = #hivm.module_core_type<AIC>} {
  func.func @matmul(%g0: memref<100x130xf16, #gm>, %g1: memref<130x150xf16, #gm>, %g2: memref<100x150xf16, #gm>)
      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIC>} {
    %c0 = arith.constant 0 : index
    %c3 = arith.constant 3 : index
    %c1 = arith.constant 1 : index
    %c130 = arith.constant 130 : index
    %c64 = arith.constant 64 : index
    %c2 = arith.constant 2 : index
    %c100 = arith.constant 100 : index
    %c150 = arith.constant 150 : index
    %v1 = hivm.hir.get_block_idx -> i64
    %core2 = arith.index_cast %v1 : i64 to index
    %buffer3 = memref.alloc() : memref<4096xf32, #cc> loc("acc"("matmul.py":3:5))
    scf.for %i4 = %c0 to %c3 step %c1 {
      scf.for %i5 = %c0 to %c130 step %c64 {
        %buffer6 = memref.alloc() : memref<4096xf16, #cbuf> loc("left"("matmul.py":1:5))
        annotation.mark %buffer6 {hivm.multi_buffer = 2 : i32} : memref<4096xf16, #cbuf> loc("matmul.py":5:5)
        %buffer7 = memref.alloc() : memref<4096xf16, #cbuf> loc("right"("matmul.py":2:5))
        annotation.mark %buffer7 {hivm.multi_buffer = 2 : i32} : memref<4096xf16, #cbuf> loc("matmul.py":5:5)
        %v8 = arith.muli %i4, %c2 : index loc("matmul.py":6:5)
        %v9 = arith.addi %v8, %core2 : index loc("matmul.py":6:5)
        %v10 = arith.divsi %v9, %c3 : index loc("matmul.py":6:5)
        %v11 = arith.muli %v10, %c64 : index loc("matmul.py":6:5)
        %v12 = arith.muli %v11, %c130 : index loc("matmul.py":6:5)
        %v13 = arith.addi %v12, %i5 : index loc("matmul.py":6:5)
        %v14 = arith.subi %c100, %v11 : index loc("matmul.py":6:5)
        %v15 = arith.minsi %v14, %c64 : index loc("matmul.py":6:5)
        %v16 = arith.maxsi %v15, %c0 : index loc("matmul.py":6:5)
        %v17 = arith.subi %c130, %i5 : index loc("matmul.py":6:5)
        %v18 = arith.minsi %v17, %c64 : index loc("matmul.py":6:5)
        %view19 = memref.reinterpret_cast %g0 to offset: [%v13], sizes: [%v16, %v18], strides: [130, 1] : memref<100x130xf16, #gm> to memref<?x?xf16, strided<[130, 1], offset: ?>, #gm> loc("matmul.py":6:5)
        %view20 = memref.reinterpret_cast %buffer6 to offset: [0], sizes: [4, 4, 16, 16], strides: [1024, 256, 16, 1] : memref<4096xf16, #cbuf> to memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf> loc("matmul.py":6:5)
        hivm.hir.nd2nz {dst_continuous} ins(%view19 : memref<?x?xf16, strided<[130, 1], offset: ?>, #gm>) outs(%view20 : memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf>) loc("matmul.py":6:5)
        %v21 = arith.muli %i5, %c150 : index loc("matmul.py":7:5)
        %v22 = arith.remsi %v9, %c3 : index loc("matmul.py":7:5)
        %v23 = arith.muli %v22, %c64 : index loc("matmul.py":7:5)
        %v24 = arith.addi %v21, %v23 : index loc("matmul.py":7:5)
        %v25 = arith.subi %c150, %v23 : index loc("matmul.py":7:5)
        %v26 = arith.minsi %v25, %c64 : index loc("matmul.py":7:5)
        %view27 = memref.reinterpret_cast %g1 to offset: [%v24], sizes: [%v18, %v26], strides: [150, 1] : memref<130x150xf16, #gm> to memref<?x?xf16, strided<[150, 1], offset: ?>, #gm> loc("matmul.py":7:5)
        %view28 = memref.reinterpret_cast %buffer7 to offset: [0], sizes: [4, 4, 16, 16], strides: [1024, 256, 16, 1] : memref<4096xf16, #cbuf> to memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf> loc("matmul.py":7:5)
        hivm.hir.nd2nz {dst_continuous} ins(%view27 : memref<?x?xf16, strided<[150, 1], offset: ?>, #gm>) outs(%view28 : memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf>) loc("matmul.py":7:5)
        %view29 = memref.reinterpret_cast %buffer3 to offset: [0], sizes: [4, 4, 16, 16], strides: [1024, 256, 16, 1] : memref<4096xf32, #cc> to memref<4x4x16x16xf32, strided<[1024, 256, 16, 1]>, #cc> loc("matmul.py":8:5)
        %v30 = arith.cmpi eq, %i5, %c0 : index loc("matmul.py":8:5)
        hivm.hir.mmadL1 ins(%view20, %view28, %v30, %v16, %v18, %v26 : memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf>, memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf>, i1, index, index, index) outs(%view29 : memref<4x4x16x16xf32, strided<[1024, 256, 16, 1]>, #cc>) loc("matmul.py":8:5)
      } loc("matmul.py":5:5)
      %view31 = memref.reinterpret_cast %buffer3 to offset: [0], sizes: [4, 4, 16, 16], strides: [1024, 256, 16, 1] : memref<4096xf32, #cc> to memref<4x4x16x16xf32, strided<[1024, 256, 16, 1]>, #cc> loc("matmul.py":9:5)
      %v32 = arith.muli %i4, %c2 : index loc("matmul.py":9:5)
      %v33 = arith.addi %v32, %core2 : index loc("matmul.py":9:5)
      %v34 = arith.divsi %v33, %c3 : index loc("matmul.py":9:5)
      %v35 = arith.muli %v34, %c64 : index loc("matmul.py":9:5)
      %v36 = arith.muli %v35, %c150 : index loc("matmul.py":9:5)
      %v37 = arith.remsi %v33, %c3 : index loc("matmul.py":9:5)
      %v38 = arith.muli %v37, %c64 : index loc("matmul.py":9:5)
      %v39 = arith.addi %v36, %v38 : index loc("matmul.py":9:5)
      %v40 = arith.subi %c100, %v35 : index loc("matmul.py":9:5)
      %v41 = arith.minsi %v40, %c64 : index loc("matmul.py":9:5)
      %v42 = arith.maxsi %v41, %c0 : index loc("matmul.py":9:5)
      %v43 = arith.subi %c150, %v38 : index loc("matmul.py":9:5)
      %v44 = arith.minsi %v43, %c64 : index loc("matmul.py":9:5)
      %view45 = memref.reinterpret_cast %g2 to offset: [%v39], sizes: [%v42, %v44], strides: [150, 1] : memref<100x150xf16, #gm> to memref<?x?xf16, strided<[150, 1], offset: ?>, #gm> loc("matmul.py":9:5)
      hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>, pre_quant = #hivm.fixpipe_pre_quant_mode<F322F16>} ins(%view31 : memref<4x4x16x16xf32, strided<[1024, 256, 16, 1]>, #cc>) outs(%view45 : memref<?x?xf16, strided<[150, 1], offset: ?>, #gm>) loc("matmul.py":9:5)
    } loc("matmul.py":4:5)
    return loc("matmul.py":4:5)
  }
}
