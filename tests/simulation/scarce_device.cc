#include "tests/simulation/scarce_device.h"

#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/device/cpu_device.h"

namespace braid {
namespace {

class ScarceDevice final : public Device {
 public:
  ScarceDevice(std::unique_ptr<Device> device, std::function<bool()> is_out)
      : Device("scarce", device->index()), device_(std::move(device)), is_out_(std::move(is_out)) {}

  const KernelRegistry& kernels() const override { return device_->kernels(); }
  bool is_host() const override { return true; }
  absl::StatusOr<Memory> Allocate(MemoryKind kind, uint64_t bytes) override {
    BRAID_RETURN_IF_ERROR(Check(bytes));
    return device_->Allocate(kind, bytes);
  }
  std::span<std::byte> arena(MemoryKind kind) const override { return device_->arena(kind); }
  absl::Status GrowArena(MemoryKind kind, uint64_t bytes) override {
    if (bytes > arena(kind).size()) BRAID_RETURN_IF_ERROR(Check(bytes));
    return device_->GrowArena(kind, bytes);
  }
  Stream& stream(StreamKind kind) override { return device_->stream(kind); }
  std::unique_ptr<StreamEvent> MakeEvent() override { return device_->MakeEvent(); }
  void Drain(Notice drained) override { device_->Drain(std::move(drained)); }

 private:
  absl::Status Check(uint64_t bytes) const {
    if (bytes == 0 || !is_out_()) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrFormat("a device wants %d bytes and no memory is left", bytes));
  }

  const std::unique_ptr<Device> device_;
  const std::function<bool()> is_out_;
};

}  // namespace

DeviceKinds::Kind ScarceKind(std::function<bool(uint16_t node)> is_out) {
  return {.is_host = true, .make = [is_out = std::move(is_out)](const DeviceRequest& request) {
            return std::make_unique<ScarceDevice>(
                MakeCpuDevice(request), [is_out, node = request.node] { return is_out(node); });
          }};
}

}  // namespace braid
