#include "runtime/base/thread_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ThreadLimitTest, NamesTheLimitsAndTheirValues) {
  EXPECT_EQ(CheckThreads(0), absl::OkStatus());
  EXPECT_EQ(CheckThreads(20), absl::OkStatus());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  // Each thread takes 8 MB of stack.
  const uint64_t limit = pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) + (200 << 20);
  const rlimit little{limit, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  const absl::Status status = CheckThreads(100);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("100 threads more are needed"), HasSubstr("this process has "),
                    HasSubstr("ulimit -v (8 MB of it a thread) " + std::to_string(limit))));
  EXPECT_EQ(CheckThreads(100), absl::OkStatus());
}

}  // namespace
}  // namespace braid
