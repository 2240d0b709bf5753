#include "runtime/device/cpu_device.h"

#include "runtime/device/host_arena.h"
#include "runtime/device/host_memory.h"

namespace braid {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(int index, const KernelRegistry* kernels) : Device("cpu", index, kernels) {}

  absl::StatusOr<Memory> Allocate(MemoryKind /*all are one*/, uint64_t bytes) override {
    return AllocateHostMemory(bytes);
  }
  std::span<std::byte> arena() const override { return arena_.bytes(); }
  absl::Status GrowArena(uint64_t bytes) override { return arena_.Grow(bytes); }

 private:
  HostArena arena_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int index, const KernelRegistry* kernels) {
  return std::make_unique<CpuDevice>(index, kernels);
}

}  // namespace braid
