// The registry: what is missing, what is wrapped, and what is planned without being made.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/kernel.h"
#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

TEST(KernelRegistryTest, SaysWhatIsMissing) {
  KernelRegistry registry = CpuKernels();
  EXPECT_TRUE(registry.Has("matmul"));
  EXPECT_FALSE(registry.Has("convolute"));
  KernelSpec spec;
  spec.op = "convolute";
  spec.name = "c1";
  EXPECT_TRUE(absl::IsNotFound(registry.Create(spec).status()));
  const auto make = [](const KernelSpec&) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return absl::InternalError("never made");
  };
  EXPECT_TRUE(absl::IsAlreadyExists(registry.Register("matmul", make)));
  KernelCase bad("exp");
  bad.In(DType::kI32, {2}, {1, 2}).Out(DType::kI32, {2});
  const absl::Status status = bad.Create();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_EQ(status.message(), "no cpu kernel for exp 'test/exp' (i32 -> i32)");
}

TEST(KernelRegistryTest, WrapsWhatItMakes) {
  class Silent final : public Kernel {
    absl::Status Run(const KernelRun&) override { return absl::OkStatus(); }
  };
  KernelRegistry registry = CpuKernels();
  std::vector<std::string> made;
  registry.WrapAll([&](const KernelSpec& spec, std::unique_ptr<Kernel> kernel) {
    EXPECT_NE(kernel, nullptr);
    made.push_back(spec.name);
    return std::make_unique<Silent>();
  });
  KernelSpec spec;
  spec.op = "exp";
  spec.name = "e1";
  spec.inputs = spec.outputs = {{.logical = {2}, .region = {{0}, {2}}}};
  const auto kernel = registry.Create(spec);
  ASSERT_TRUE(kernel.ok());
  EXPECT_NE(dynamic_cast<Silent*>(kernel->get()), nullptr);
  spec.inputs[0].dtype = DType::kI32;
  EXPECT_FALSE(registry.Create(spec).ok());  // there is nothing to wrap
  EXPECT_EQ(made, std::vector<std::string>{"e1"});
}

TEST(KernelRegistryTest, PlansWithoutMaking) {
  class Silent final : public Kernel {
    absl::Status Run(const KernelRun&) override { return absl::OkStatus(); }
  };
  int made = 0, wrapped = 0;
  const auto make = [&](const KernelSpec&) {
    ++made;
    return std::make_unique<Silent>();
  };
  const auto memory = [](const KernelSpec& spec) {
    return KernelMemory{.own = 4 * spec.inputs[0].num_elements(), .shared = 16};
  };
  KernelRegistry base;
  ASSERT_TRUE(base.Register("keeps", {make, memory}).ok());
  ASSERT_TRUE(base.Register("keeps_nothing", make).ok());
  const KernelRegistry registry(&base, [&](const KernelSpec&, std::unique_ptr<Kernel> kernel) {
    ++wrapped;
    return kernel;
  });
  KernelSpec spec = {.op = "keeps"};
  spec.inputs = {{.logical = {3}, .region = {{0}, {3}}}};
  const auto planned = registry.Plan(spec);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->memory.own, 12);
  EXPECT_EQ(planned->memory.shared, 16);
  EXPECT_EQ(made + wrapped, 0);
  ASSERT_TRUE(planned->make().ok());
  EXPECT_EQ(made, 1);
  EXPECT_EQ(wrapped, 1);
  spec.op = "keeps_nothing";
  const auto other = registry.Plan(spec);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->memory.own + other->memory.shared, 0);
  EXPECT_EQ(made, 1);
  spec.op = "is_missing";
  EXPECT_TRUE(absl::IsNotFound(registry.Plan(spec).status()));
}

}  // namespace
}  // namespace braid
