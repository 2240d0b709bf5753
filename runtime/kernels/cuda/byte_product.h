// Of KernelSpecs: what products of bytes share.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/kernels/cuda/integers.h"
#include "runtime/kernels/kernel.h"

namespace braid::cuda {

// The types of the operands.
ByteProductLaunch ByteOperandsOf(const KernelSpec& spec);
// `table` is borrowed as long as the kernel.
std::unique_ptr<Kernel> MakeByteProduct(const ByteProductLaunch& launch, const IntegerTable& table,
                                        size_t num_inputs);

}  // namespace braid::cuda
