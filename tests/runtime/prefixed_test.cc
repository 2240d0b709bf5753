#include "runtime/base/prefixed.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(PrefixedTest, SaysWhatItIsAboutAndKeepsTheCode) {
  EXPECT_EQ(Prefixed("saving to 'here'", absl::DataLossError("the disk is full")),
            absl::DataLossError("saving to 'here': the disk is full"));
  EXPECT_TRUE(Prefixed("saving to 'here'", absl::OkStatus()).ok());
}

}  // namespace
}  // namespace braid
