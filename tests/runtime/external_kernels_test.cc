// What the kernels that reach outside the plan refuse when a node loads a job.
#include "runtime/external_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/array.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

class ReadKernel : public ::testing::Test {
 protected:
  ReadKernel() {
    EXPECT_EQ(Array::FromVector<float>({4}, {0, 1, 2, 3}).WriteNpy(dir_ / "x.npy"),
              absl::OkStatus());
    data_ = NpyFiles({{"x", dir_ / "x.npy"}});
    EXPECT_EQ(RegisterExternalKernels({&datasets_, &host_}, kernels_), absl::OkStatus());
  }

  KernelSpec Spec() const {
    KernelSpec spec{.op = "read", .name = "r", .attrs = {}};
    spec.attrs.Set("dataset", data_.Serialize());
    spec.attrs.Set("fields", std::vector<int64_t>{0});
    spec.attrs.Set("shuffle", false);
    spec.attrs.Set("key", "");
    spec.attrs.Set("batch", int64_t{2});
    OperandSpec& output = spec.outputs.emplace_back();
    output.logical = Shape({2});
    output.region = Region::Whole(output.logical);
    return spec;
  }
  std::string Refusal(const KernelSpec& spec) const {
    return std::string(kernels_.Create(spec).status().message());
  }

  TempDir dir_;
  DatasetSpec data_;
  DatasetCache datasets_;
  HostIo host_;
  KernelRegistry kernels_;
};

TEST_F(ReadKernel, ComparesTheFingerprintThatThePlanHas) {
  KernelSpec spec = Spec();
  EXPECT_EQ(Refusal(spec), "");
  auto opened = datasets_.Open(data_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto fingerprint = static_cast<int64_t>((*opened)->fingerprint());
  spec.attrs.Set("fingerprint", fingerprint);
  EXPECT_EQ(Refusal(spec), "");
  spec.attrs.Set("fingerprint", fingerprint + 1);
  EXPECT_THAT(Refusal(spec), HasSubstr("is another than the master's: it has 4 samples"));
}

TEST_F(ReadKernel, RefusesAttributesOfAnotherType) {
  KernelSpec spec = Spec();
  spec.attrs.Set("fingerprint", "7");
  EXPECT_THAT(Refusal(spec), HasSubstr("the attribute 'fingerprint=\"7\"' has another type"));
  spec = Spec();
  spec.attrs.Set("batch", 2.0);
  EXPECT_THAT(Refusal(spec), HasSubstr("has another type"));
}

}  // namespace
}  // namespace braid
