// Matrix products by cuBLASLt, which is opened when the program runs.
#pragma once

#include <cstddef>

#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/matmul.h"

namespace braid::cuda {

struct CublasLt;

// For the current device. Null if it cannot be opened; then the text says why.
CublasLt* OpenCublasLt(const char* folders, char* text, size_t text_bytes);
void CloseCublasLt(CublasLt* library);  // may be null

// How the library computes products of one shape, one type, and so on.
struct LtPlan;

// Chosen by the library's rules once for each shape, type and alignment, without measuring
// anything: a run repeats bit for bit. Null if the queue's device has no library, or that has no
// way for such products. Lives as long as the library.
const LtPlan* FindLtPlan(const Queue& queue, const MatmulLaunch& launch);
Error Multiply(const Queue& queue, const MatmulLaunch& launch, const LtPlan& plan);

}  // namespace braid::cuda
