// Variables that are set from files, and that are split since their devices cannot hold them whole.

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "api/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using testing::HasSubstr;

// What a file has from byte 12 on, on devices that hold all of it, rows or columns.
TEST(VariablesTest, AreSetFromFiles) {
  constexpr int64_t kRows = 96, kColumns = 1000;
  const std::string path = TestFolder() + "/numbers.bin";
  std::vector<float> numbers(kRows * kColumns);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  {
    std::ofstream file(path, std::ios::binary);
    file << "twelve bytes";
    file.write(reinterpret_cast<const char*>(numbers.data()),
               static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  }
  for (const Sbp& sbp : {sbp::B, sbp::S(0), sbp::S(1)}) {
    const auto session = StartOrDie({.devices = {3, 2}});
    const auto job = session->Compile("job", [&](Job& job) {
      job.Fetch("x", Variable(job.graph(), {.name = "x", .shape = {kRows, kColumns}, .sbp = sbp}));
    });
    ASSERT_TRUE(job.ok()) << job.status().message();
    ASSERT_EQ(session->SetFromFiles({{"x", {.path = path, .offset = 12}}}), absl::OkStatus());
    const absl::StatusOr<Array> x = session->Get("x");
    ASSERT_TRUE(x.ok()) << x.status().message();
    EXPECT_TRUE(std::ranges::equal(x->data<float>(), numbers)) << sbp.ToString();
    const absl::Status beyond = session->SetFromFiles({{"x", {.path = path, .offset = 13}}});
    EXPECT_TRUE(absl::IsOutOfRange(beyond)) << beyond;
    EXPECT_THAT(std::string(beyond.message()),
                HasSubstr("reads 384000 bytes of '" + path + "' from byte 13 on; it has 384012"));
    const absl::Status missing = session->SetFromFiles({{"x", {.path = path + ".not"}}});
    EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
    const absl::Status unknown = session->SetFromFiles({{"y", {.path = path}}});
    EXPECT_THAT(std::string(unknown.message()), HasSubstr("no compiled job has a variable 'y'"));
    EXPECT_EQ(session->Get("x")->data<float>()[7], 7) << "mistakes change nothing";
  }
}

// With its largest variables whole, the job would not fit; small ones stay whole, and so does one
// that the user laid out.
TEST(VariablesTest, AreSplitWhereTheyDoNotFitWhole) {
  const auto record = [](std::optional<NdSbp> sbp) {
    return [sbp](Job& job) {
      Tensor x = job.Input("x", {4, 256});
      for (int i = 0; i < 8; ++i) {
        const Tensor w = Variable(job.graph(), {.name = absl::StrCat("w", i),
                                                .shape = {256, 256},
                                                .init = "uniform",
                                                .low = -0.1,
                                                .high = 0.1,
                                                .sbp = sbp});
        x = Add(MatMul(x, w),
                Variable(job.graph(), {.name = absl::StrCat("b", i), .shape = {256}}));
      }
      job.Fetch("y", x);
    };
  };
  const auto run = [&](int64_t memory, std::string* explained) -> std::vector<float> {
    const auto session = StartOrDie({.devices = {2}, .device_memory_bytes = memory});
    auto job = session->Compile("job", record(std::nullopt));
    if (!job.ok()) {
      ADD_FAILURE() << job.status();
      return {};
    }
    *explained = job->Explain();
    const auto result = job->Run(
        {.feeds = {{"x", Array::FromVector<float>({4, 256}, std::vector<float>(1024, 1))}}});
    if (!result.ok()) ADD_FAILURE() << result.status();
    const auto y = result->Last("y").data<float>();
    return {y.begin(), y.end()};
  };
  constexpr int64_t kWhole = 8 << 20, kLess = 3 << 19;  // 2 MiB of weights
  std::string whole, split;
  const std::vector<float> expected = run(kWhole, &whole), y = run(kLess, &split);
  ASSERT_EQ(y.size(), expected.size());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-4) << i;
  const auto layout = [](const std::string& explained, const std::string& variable) {
    const size_t at = explained.find(absl::StrCat("variable \"", variable, "\""));
    const size_t sbp = explained.find("sbp=", at);
    return explained.substr(sbp, explained.find(' ', sbp) - sbp);
  };
  EXPECT_EQ(layout(whole, "w3"), "sbp=()->(B)");
  EXPECT_EQ(layout(split, "w3"), "sbp=()->(S(0))");
  EXPECT_EQ(layout(split, "b3"), "sbp=()->(B)");

  const auto session = StartOrDie({.devices = {2}, .device_memory_bytes = kLess});
  const auto asked = session->Compile("asked", record(NdSbp(sbp::B)));
  EXPECT_TRUE(absl::IsResourceExhausted(asked.status())) << asked.status();
  EXPECT_THAT(std::string(asked.status().message()), HasSubstr("are split already"));
}

}  // namespace
}  // namespace braid
