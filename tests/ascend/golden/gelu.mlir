#gm = #hivm.address_space<gm>
#ub = #hivm.address_space<ub>
#cbuf = #hivm.address_space<cbuf>
#cc = #hivm.address_space<cc>
module attributes {hivm.module_core_type = #hivm.module_core_type<MIX>} {
  func.func @gelu_mix_aic(%ffts: i64 {hacc.arg_type = #hacc.arg_type<ffts_base_address>}, %g0: memref<2x64x64xf32, #gm> {hacc.arg_type = #hacc.arg_type<workspace>}, %g1: memref<256x96xf16, #gm>, %g2: memref<96x64xf16, #gm>, %g3: memref<64xf32, #gm>, %g4: memref<256x64xf16, #gm>)
      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIC>, hivm.part_of_mix, mix_mode = "mix"} {
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %c1 = arith.constant 1 : index
    %c96 = arith.constant 96 : index
    %c64 = arith.constant 64 : index
    %c4096 = arith.constant 4096 : index
    hivm.hir.set_ffts_base_addr %ffts
    %v1 = hivm.hir.get_block_idx -> i64
    %core2 = arith.index_cast %v1 : i64 to index
    %buffer3 = memref.alloc() : memref<4096xf32, #cc> loc("acc"("gelu_cube.py":3:5))
    scf.for %i4 = %c0 to %c2 step %c1 {
      scf.for %i5 = %c0 to %c96 step %c64 {
        %buffer6 = memref.alloc() : memref<4096xf16, #cbuf> loc("left"("gelu_cube.py":1:5))
        annotation.mark %buffer6 {hivm.multi_buffer = 2 : i32} : memref<4096xf16, #cbuf> loc("gelu_cube.py":5:5)
        %buffer7 = memref.alloc() : memref<4096xf16, #cbuf> loc("right"("gelu_cube.py":2:5))
        annotation.mark %buffer7 {hivm.multi_buffer = 2 : i32} : memref<4096xf16, #cbuf> loc("gelu_cube.py":5:5)
        %v8 = arith.muli %i4, %c2 : index loc("gelu_cube.py":6:5)
        %v9 = arith.addi %v8, %core2 : index loc("gelu_cube.py":6:5)
        %v10 = arith.muli %v9, %c64 : index loc("gelu_cube.py":6:5)
        %v11 = arith.muli %v10, %c96 : index loc("gelu_cube.py":6:5)
        %v12 = arith.addi %v11, %i5 : index loc("gelu_cube.py":6:5)
        %v13 = arith.subi %c96, %i5 : index loc("gelu_cube.py":6:5)
        %v14 = arith.minsi %v13, %c64 : index loc("gelu_cube.py":6:5)
        %view15 = memref.reinterpret_cast %g1 to offset: [%v12], sizes: [64, %v14], strides: [96, 1] : memref<256x96xf16, #gm> to memref<64x?xf16, strided<[96, 1], offset: ?>, #gm> loc("gelu_cube.py":6:5)
        %view16 = memref.reinterpret_cast %buffer6 to offset: [0], sizes: [4, 4, 16, 16], strides: [1024, 256, 16, 1] : memref<4096xf16, #cbuf> to memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf> loc("gelu_cube.py":6:5)
        hivm.hir.nd2nz {dst_continuous} ins(%view15 : memref<64x?xf16, strided<[96, 1], offset: ?>, #gm>) outs(%view16 : memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf>) loc("gelu_cube.py":6:5)
        %v17 = arith.muli %i5, %c64 : index loc("gelu_cube.py":7:5)
        %view18 = memref.reinterpret_cast %g2 to offset: [%v17], sizes: [%v14, 64], strides: [64, 1] : memref<96x64xf16, #gm> to memref<?x64xf16, strided<[64, 1], offset: ?>, #gm> loc("gelu_cube.py":7:5)
        %view19 = memref.reinterpret_cast %buffer7 to offset: [0], sizes: [4, 4, 16, 16], strides: [1024, 256, 16, 1] : memref<4096xf16, #cbuf> to memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf> loc("gelu_cube.py":7:5)
        hivm.hir.nd2nz {dst_continuous} ins(%view18 : memref<?x64xf16, strided<[64, 1], offset: ?>, #gm>) outs(%view19 : memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf>) loc("gelu_cube.py":7:5)
        %view20 = memref.reinterpret_cast %buffer3 to offset: [0], sizes: [4, 4, 16, 16], strides: [1024, 256, 16, 1] : memref<4096xf32, #cc> to memref<4x4x16x16xf32, strided<[1024, 256, 16, 1]>, #cc> loc("gelu_cube.py":8:5)
        %v21 = arith.cmpi eq, %i5, %c0 : index loc("gelu_cube.py":8:5)
        hivm.hir.mmadL1 ins(%view16, %view19, %v21, %c64, %v14, %c64 : memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf>, memref<4x4x16x16xf16, strided<[1024, 256, 16, 1]>, #cbuf>, i1, index, index, index) outs(%view20 : memref<4x4x16x16xf32, strided<[1024, 256, 16, 1]>, #cc>) loc("gelu_cube.py":8:5)
      } loc("gelu_cube.py":5:5)
      %view22 = memref.reinterpret_cast %buffer3 to offset: [0], sizes: [4, 4, 16, 16], strides: [1024, 256, 16, 1] : memref<4096xf32, #cc> to memref<4x4x16x16xf32, strided<[1024, 256, 16, 1]>, #cc> loc("gelu_cube.py":9:5)
      %v23 = arith.muli %core2, %c4096 : index loc("gelu_cube.py":9:5)
      %view24 = memref.reinterpret_cast %g0 to offset: [%v23], sizes: [64, 64], strides: [64, 1] : memref<2x64x64xf32, #gm> to memref<64x64xf32, strided<[64, 1], offset: ?>, #gm> loc("gelu_cube.py":9:5)
      hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>} ins(%view22 : memref<4x4x16x16xf32, strided<[1024, 256, 16, 1]>, #cc>) outs(%view24 : memref<64x64xf32, strided<[64, 1], offset: ?>, #gm>) loc("gelu_cube.py":9:5)
      hivm.hir.sync_block_set[<CUBE>, <PIPE_FIX>, <PIPE_MTE2>] flag = 0 loc("gelu_cube.py":10:5)
      hivm.hir.sync_block_wait[<CUBE>, <PIPE_MTE2>, <PIPE_FIX>] flag = 1 loc("gelu_cube.py":11:5)
    } loc("gelu_cube.py":4:5)
    return loc("gelu_cube.py":4:5)
  }
  func.func @gelu_mix_aiv(%ffts: i64 {hacc.arg_type = #hacc.arg_type<ffts_base_address>}, %g0: memref<2x64x64xf32, #gm> {hacc.arg_type = #hacc.arg_type<workspace>}, %g1: memref<256x96xf16, #gm>, %g2: memref<96x64xf16, #gm>, %g3: memref<64xf32, #gm>, %g4: memref<256x64xf16, #gm>)
      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>, hivm.part_of_mix, mix_mode = "mix"} {
    %c2 = arith.constant 2 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %c32 = arith.constant 32 : index
    %c5_f32 = arith.constant -1.7020000219345093 : f32
    %c6_f32 = arith.constant 1.0 : f32
    hivm.hir.set_ffts_base_addr %ffts
    %v1 = hivm.hir.get_block_idx -> i64
    %core2 = arith.index_cast %v1 : i64 to index
    %v3 = hivm.hir.get_sub_block_idx -> i64
    %half4 = arith.index_cast %v3 : i64 to index
    %v5 = arith.muli %core2, %c2 : index
    %core6 = arith.addi %v5, %half4 : index
    %buffer7 = memref.alloc() : memref<64xf32, #ub> loc("row"("gelu_vector.py":3:5))
    %view8 = memref.reinterpret_cast %g3 to offset: [0], sizes: [64], strides: [1] : memref<64xf32, #gm> to memref<64xf32, strided<[1]>, #gm> loc("gelu_vector.py":5:5)
    hivm.hir.load ins(%view8 : memref<64xf32, strided<[1]>, #gm>) outs(%buffer7 : memref<64xf32, #ub>) loc("gelu_vector.py":5:5)
    scf.for %i9 = %c0 to %c2 step %c1 {
      %buffer10 = memref.alloc() : memref<2048xf32, #ub> loc("x"("gelu_vector.py":1:5))
      %buffer11 = memref.alloc() : memref<2048xf32, #ub> loc("t"("gelu_vector.py":2:5))
      %buffer12 = memref.alloc() : memref<2048xf16, #ub> loc("h"("gelu_vector.py":4:5))
      hivm.hir.sync_block_wait[<VECTOR>, <PIPE_FIX>, <PIPE_MTE2>] flag = 0 loc("gelu_vector.py":7:5)
      %v13 = arith.divsi %core6, %c2 : index loc("gelu_vector.py":8:5)
      %v14 = arith.muli %v13, %c64 : index loc("gelu_vector.py":8:5)
      %v15 = arith.muli %half4, %c32 : index loc("gelu_vector.py":8:5)
      %v16 = arith.addi %v14, %v15 : index loc("gelu_vector.py":8:5)
      %v17 = arith.muli %v16, %c64 : index loc("gelu_vector.py":8:5)
      %view18 = memref.reinterpret_cast %g0 to offset: [%v17], sizes: [32, 64], strides: [64, 1] : memref<2x64x64xf32, #gm> to memref<32x64xf32, strided<[64, 1], offset: ?>, #gm> loc("gelu_vector.py":8:5)
      %view19 = memref.reinterpret_cast %buffer10 to offset: [0], sizes: [32, 64], strides: [64, 1] : memref<2048xf32, #ub> to memref<32x64xf32, strided<[64, 1]>, #ub> loc("gelu_vector.py":8:5)
      hivm.hir.load ins(%view18 : memref<32x64xf32, strided<[64, 1], offset: ?>, #gm>) outs(%view19 : memref<32x64xf32, strided<[64, 1]>, #ub>) loc("gelu_vector.py":8:5)
      hivm.hir.sync_block_set[<VECTOR>, <PIPE_MTE2>, <PIPE_FIX>] flag = 1 loc("gelu_vector.py":9:5)
      %view20 = memref.reinterpret_cast %buffer7 to offset: [0], sizes: [1, 64], strides: [64, 1] : memref<64xf32, #ub> to memref<1x64xf32, strided<[64, 1]>, #ub> loc("gelu_vector.py":10:5)
      hivm.hir.vadd ins(%view19, %view20 : memref<32x64xf32, strided<[64, 1]>, #ub>, memref<1x64xf32, strided<[64, 1]>, #ub>) outs(%view19 : memref<32x64xf32, strided<[64, 1]>, #ub>) broadcast = [0] loc("gelu_vector.py":10:5)
      %view21 = memref.reinterpret_cast %buffer11 to offset: [0], sizes: [32, 64], strides: [64, 1] : memref<2048xf32, #ub> to memref<32x64xf32, strided<[64, 1]>, #ub> loc("gelu_vector.py":11:5)
      hivm.hir.vmul ins(%view19, %c5_f32 : memref<32x64xf32, strided<[64, 1]>, #ub>, f32) outs(%view21 : memref<32x64xf32, strided<[64, 1]>, #ub>) loc("gelu_vector.py":11:5)
      hivm.hir.vexp ins(%view21 : memref<32x64xf32, strided<[64, 1]>, #ub>) outs(%view21 : memref<32x64xf32, strided<[64, 1]>, #ub>) loc("gelu_vector.py":12:5)
      hivm.hir.vadd ins(%view21, %c6_f32 : memref<32x64xf32, strided<[64, 1]>, #ub>, f32) outs(%view21 : memref<32x64xf32, strided<[64, 1]>, #ub>) loc("gelu_vector.py":13:5)
      hivm.hir.vdiv ins(%view19, %view21 : memref<32x64xf32, strided<[64, 1]>, #ub>, memref<32x64xf32, strided<[64, 1]>, #ub>) outs(%view21 : memref<32x64xf32, strided<[64, 1]>, #ub>) loc("gelu_vector.py":14:5)
      %view22 = memref.reinterpret_cast %buffer12 to offset: [0], sizes: [32, 64], strides: [64, 1] : memref<2048xf16, #ub> to memref<32x64xf16, strided<[64, 1]>, #ub> loc("gelu_vector.py":15:5)
      hivm.hir.vcast ins(%view21 : memref<32x64xf32, strided<[64, 1]>, #ub>) outs(%view22 : memref<32x64xf16, strided<[64, 1]>, #ub>) round_mode = #hivm.round_mode<rint> loc("gelu_vector.py":15:5)
      %v23 = arith.muli %i9, %c2 : index loc("gelu_vector.py":16:5)
      %v24 = arith.addi %v23, %v13 : index loc("gelu_vector.py":16:5)
      %v25 = arith.muli %v24, %c64 : index loc("gelu_vector.py":16:5)
      %v26 = arith.addi %v25, %v15 : index loc("gelu_vector.py":16:5)
      %v27 = arith.muli %v26, %c64 : index loc("gelu_vector.py":16:5)
      %view28 = memref.reinterpret_cast %g4 to offset: [%v27], sizes: [32, 64], strides: [64, 1] : memref<256x64xf16, #gm> to memref<32x64xf16, strided<[64, 1], offset: ?>, #gm> loc("gelu_vector.py":16:5)
      hivm.hir.store ins(%view22 : memref<32x64xf16, strided<[64, 1]>, #ub>) outs(%view28 : memref<32x64xf16, strided<[64, 1], offset: ?>, #gm>) loc("gelu_vector.py":16:5)
    } loc("gelu_vector.py":6:5)
    return loc("gelu_vector.py":6:5)
  }
}
