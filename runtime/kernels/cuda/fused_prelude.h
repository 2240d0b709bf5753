// What stands in front of kernels that are written when a job is loaded (fused_text.h).
#pragma once

#include "runtime/kernels/cuda/fused_operands.h"
#include "runtime/kernels/cuda/stored_elements.h"
#include "runtime/kernels/functions/activation_ops.h"
