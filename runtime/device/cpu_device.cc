#include "runtime/device/cpu_device.h"

#include "runtime/device/device_kinds.h"
#include "runtime/device/host_arena.h"
#include "runtime/device/host_memory.h"

namespace braid {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceRequest& request)
      : Device("cpu", request.index),
        kernels_(*request.cpu_kernels),
        own_(request.devices, request.shared_heap),
        pinned_(request.devices),
        for_peers_(MemoryForPeers(request.shared_heap)) {}

  const KernelRegistry& kernels() const override { return kernels_; }
  bool is_host() const override { return true; }
  // What lies on the host for its streams is what collectives land in.
  absl::StatusOr<Memory> Allocate(MemoryKind kind, uint64_t bytes) override {
    return kind == MemoryKind::kPinned ? for_peers_(bytes) : AllocateHostMemory(bytes);
  }
  std::span<std::byte> arena(MemoryKind kind) const override {
    return kind == MemoryKind::kOwn ? own_.bytes() : pinned_.bytes();
  }
  absl::Status GrowArena(MemoryKind kind, uint64_t bytes) override {
    return kind == MemoryKind::kOwn ? own_.Grow(bytes) : pinned_.Grow(bytes);
  }
  Stream& stream(StreamKind /*kind*/) override { return stream_; }
  std::unique_ptr<StreamEvent> MakeEvent() override { return std::make_unique<StreamEvent>(); }
  void Drain(Notice drained) override { drained(absl::OkStatus()); }

 private:
  const KernelRegistry& kernels_;
  HostArena own_, pinned_;
  const AllocateMemory for_peers_;
  HostStream stream_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const DeviceRequest& request) {
  return std::make_unique<CpuDevice>(request);
}

}  // namespace braid
