#include "runtime/device/device_kinds.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "runtime/base/reactor.h"
#include "runtime/device/cpu_device.h"
#include "runtime/kernels/kernel.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

DeviceKinds::Kind CpuKind(bool is_host = true) {
  return {.is_host = is_host, .make = MakeCpuDevice};
}

TEST(DeviceKindsTest, KnowsWhatIsRegistered) {
  DeviceKinds kinds;
  ASSERT_TRUE(kinds.Register("copying", {.is_host = false, .make = nullptr}).ok());
  EXPECT_FALSE((*kinds.Find("copying"))->is_host);
  EXPECT_TRUE((*kinds.Find("cpu"))->is_host);
  EXPECT_EQ(kinds.Find("abacus").status().message(),
            "there are no 'abacus' devices here; this program has copying, cpu");
}

TEST(DeviceKindsTest, RefusesNames) {
  DeviceKinds kinds;
  EXPECT_EQ(kinds.Register("cpu", CpuKind()).message(),
            "devices of kind 'cpu' are registered twice; choose another name");
  for (const std::string name : {"", "auto", "my_device", "gpu0", "Gpu"}) {
    EXPECT_EQ(kinds.Register(name, CpuKind()).message(),
              "'" + name +
                  "' cannot name a kind of devices, as in --devices=cpu:2; lower-case "
                  "letters were expected, and not 'auto'");
  }
}

// The plan goes by what was registered, the node by what the device says of itself.
TEST(DeviceKindsTest, DevicesAreWhatTheyAreRegisteredAs) {
  const KernelRegistry kernels;
  const DeviceRequest request = {.cpu_kernels = &kernels};
  DeviceKinds kinds;
  ASSERT_TRUE(kinds.Register("copying", CpuKind()).ok());
  EXPECT_DEATH((*kinds.Find("copying"))->make(request),
               "a device that is registered as 'copying' says that it is 'cpu'");
  DeviceKinds::Kind lagging = LaggingKind();
  lagging.is_host = true;
  ASSERT_TRUE(kinds.Register("lagging", std::move(lagging)).ok());
  const auto environment = MakeSimulatedEnvironment(1);
  EXPECT_DEATH((*kinds.Find("lagging"))->make({.environment = environment.get()}),
               "devices of kind 'lagging' are registered with is_host=1, and one says is_host=0");
}

}  // namespace
}  // namespace braid
