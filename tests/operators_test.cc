// An operator is a definition and a kernel per device, or it reaches outside the plan.

#include <gtest/gtest.h>

#include <string>

#include "graph/op_registry.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/kernel.h"

namespace braid {
namespace {

TEST(Operators, HaveCpuKernels) {
  const OpRegistry operators = BuiltinOps();
  const KernelRegistry kernels = CpuKernels();
  std::string missing;
  for (const auto& [name, def] : operators.ops()) {
    if (!def.external() && !kernels.Has(name)) missing += " " + name;
  }
  EXPECT_GT(operators.ops().size(), 50u);
  EXPECT_EQ(missing, "");
}

// Beside each kernel of a CPU.
TEST(Operators, HaveCudaKernels) {
  const OpRegistry operators = BuiltinOps();
  const cuda::KernelTable table = {};  // its launches are not made here
  const KernelRegistry cpu = CpuKernels(), cuda = cuda::CudaKernels(table);
  std::string missing;
  for (const auto& [name, def] : operators.ops()) {
    if (cpu.Has(name) && !cuda.Has(name)) missing += " " + name;
  }
  EXPECT_EQ(missing, "");
}

}  // namespace
}  // namespace braid
