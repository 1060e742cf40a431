"""f16 on x86 CPUs that have no instruction for it: the two functions that LLVM calls there.

Compilers' run-time libraries have them; a Python process need not. One rounding to nearest even;
NaNs keep the top of their payload and become quiet, as with the instruction.
"""

HALVES_IR = """
define hidden float @__extendhfsf2(half %x) nounwind {
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %low = and i32 %wide, 32767
  %place = shl i32 %low, 13
  %small = bitcast i32 %place to float
  %scaled = fmul float %small, 0x46F0000000000000 ; 2^112 mends the exponent, subnormals included
  %number = bitcast float %scaled to i32
  %special = icmp uge i32 %low, 31744
  %endless = or i32 %place, 2139095040
  %nan = icmp ugt i32 %low, 31744
  %quiet = select i1 %nan, i32 4194304, i32 0
  %other = or i32 %endless, %quiet
  %value = select i1 %special, i32 %other, i32 %number
  %signbit = and i32 %wide, 32768
  %sign = shl i32 %signbit, 16
  %signed = or i32 %value, %sign
  %r = bitcast i32 %signed to float
  ret float %r
}

define hidden half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %a = and i32 %bits, 2147483647
  ; below 2^-14: adding 0.5 leaves the subnormal's bits at the end, rounded by the addition
  %af = bitcast i32 %a to float
  %shifted = fadd float %af, 5.0e-1
  %shiftedi = bitcast float %shifted to i32
  %tiny = sub i32 %shiftedi, 1056964608
  ; else: the exponent's bias, half a unit less one, and one more if that makes the result even
  %last = lshr i32 %a, 13
  %odd = and i32 %last, 1
  %biased = sub i32 %a, 939520001 ; (112 << 23) - 4095
  %rounded = add i32 %biased, %odd
  %normal = lshr i32 %rounded, 13
  %payload0 = and i32 %last, 511
  %payload = or i32 %payload0, 32256
  %istiny = icmp ult i32 %a, 947912704
  %ishuge = icmp uge i32 %a, 1199570944
  %isnan = icmp ugt i32 %a, 2139095040
  %r0 = select i1 %istiny, i32 %tiny, i32 %normal
  %r1 = select i1 %ishuge, i32 31744, i32 %r0
  %r2 = select i1 %isnan, i32 %payload, i32 %r1
  %top = lshr i32 %bits, 16
  %sign = and i32 %top, 32768
  %signed = or i32 %r2, %sign
  %short = trunc i32 %signed to i16
  %r = bitcast i16 %short to half
  ret half %r
}
"""
