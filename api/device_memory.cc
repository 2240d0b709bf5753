#include "api/device_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "comm/collective/collective.h"
#include "compiler/plan.pb.h"
#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"
#include "runtime/kernels/kernel.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

// Of a task: the sum of what its kernels keep, and the largest of what they share.
struct KernelMemory {
  int64_t own = 0;
  int64_t shared = 0;
};

class Planner {
 public:
  explicit Planner(const MemoryPlanContext& context) : context_(context) {}

  void Add(const plan::Plan& slice, std::vector<DeviceMemory>& devices) {
    std::map<uint32_t, size_t> index_of;
    for (const plan::Arena& arena : slice.arenas()) {
      index_of[arena.device()] = devices.size();
      DeviceMemory device;
      device.node = static_cast<int>(slice.node());
      device.device = static_cast<int>(arena.device());
      device.type = arena.device_type();
      device.activations = static_cast<int64_t>(arena.bytes());
      for (uint64_t scratch : arena.scratch_bytes()) {
        device.activations += static_cast<int64_t>(scratch);
      }
      device.variables = static_cast<int64_t>(arena.variable_bytes());
      devices.push_back(std::move(device));
    }
    std::set<std::string> read;                               // datasets, on this node
    std::map<std::pair<uint32_t, uint32_t>, int64_t> shared;  // by device and thread
    for (const plan::Task& task : slice.tasks()) {
      const auto found = index_of.find(task.device());
      if (found == index_of.end()) continue;
      DeviceMemory& device = devices[found->second];
      if (task.has_collective()) {
        device.collectives += CollectiveMemoryBytes(CollectiveSpecOf(task));
      } else if (task.has_compute()) {
        const KernelMemory memory = MemoryOf(task);
        device.kernels += memory.own;
        int64_t& largest = shared[{task.device(), task.id().thread()}];
        largest = std::max(largest, memory.shared);
        for (const plan::Kernel& kernel : task.compute().kernels()) {
          if (kernel.op() == "read") device.data += ReaderBytes(kernel, read);
        }
      }
    }
    for (const auto& [at, bytes] : shared) devices[index_of.at(at.first)].kernels += bytes;
  }

 private:
  // Tasks of one name do the same work on the devices of a placement.
  KernelMemory MemoryOf(const plan::Task& task) {
    const auto [known, is_first] = of_task_.try_emplace(task.name());
    if (!is_first) return known->second;
    KernelMemory memory;
    for (const plan::Kernel& kernel : task.compute().kernels()) {
      const KernelMemory one = MemoryOf(kernel);
      memory.own += one.own;
      memory.shared = std::max(memory.shared, one.shared);
    }
    return known->second = memory;
  }

  KernelMemory MemoryOf(const plan::Kernel& kernel) {
    if (!context_.kernels->Has(kernel.op())) return {};
    // Equal but for what makes no difference here.
    plan::Kernel likeness = kernel;
    likeness.clear_name();
    likeness.clear_location();
    for (auto* operands : {likeness.mutable_inputs(), likeness.mutable_outputs()}) {
      for (plan::Operand& operand : *operands) {
        plan::Shard shard = operand.shard();
        operand.Clear();
        *operand.mutable_shard() = std::move(shard);
      }
    }
    const auto [known, is_first] = of_kernel_.try_emplace(likeness.SerializeAsString());
    if (!is_first) return known->second;
    absl::StatusOr<KernelSpec> spec = KernelSpecOf(kernel);
    if (!spec.ok()) return {};
    spec->threads = context_.threads_per_device;
    const auto made = context_.kernels->Create(*spec);
    if (!made.ok()) return {};
    return known->second = {(*made)->memory_bytes(), (*made)->shared_bytes()};
  }

  int64_t ReaderBytes(const plan::Kernel& kernel, std::set<std::string>& read) const {
    const auto spec = KernelSpecOf(kernel);
    if (!spec.ok() || !spec->attrs.Has("dataset")) return 0;
    const std::string& name = spec->attrs.String("dataset");
    const auto dataset_spec = DatasetSpec::Parse(name);
    if (!dataset_spec.ok()) return 0;
    const auto dataset = context_.datasets->Open(*dataset_spec);
    if (!dataset.ok()) return 0;
    const int64_t held = read.insert(name).second ? (*dataset)->memory_bytes() : 0;
    return held + Sampler::MemoryBytes((*dataset)->num_samples(), spec->attrs.Bool("shuffle"));
  }

  const MemoryPlanContext context_;
  std::map<std::string, KernelMemory> of_task_;
  std::map<std::string, KernelMemory> of_kernel_;
};

}  // namespace

std::vector<DeviceMemory> PlannedMemory(const std::vector<plan::Plan>& slices,
                                        const MemoryPlanContext& context) {
  Planner planner(context);
  std::vector<DeviceMemory> devices;
  for (const plan::Plan& slice : slices) planner.Add(slice, devices);
  return devices;
}

}  // namespace braid
