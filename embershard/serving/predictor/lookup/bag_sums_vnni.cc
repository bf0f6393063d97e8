// The kernels of bag_sums_avx512.cc with VNNI, which adds products in the instruction that makes
// them. The sums are whole numbers: the same bits.

#define EMBERSHARD_VNNI
#include "lookup/bag_sums_avx512.cc"
