// The kernels of bag_sums_avx512.cc with VNNI, which multiplies and adds in one instruction. The
// sums are integers, so the results are the same bits.

#define EMBERSHARD_VNNI
#include "lookup/bag_sums_avx512.cc"
