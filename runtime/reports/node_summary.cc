#include "runtime/reports/node_summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "comm/collective/collective.h"
#include "compiler/plan/node_plan.h"
#include "runtime/control.pb.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/data/sampler.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

// `read`: the datasets that were counted on this node.
int64_t ReaderBytes(const plan::Kernel& kernel, DatasetCache& datasets,
                    std::set<std::string>& read) {
  const Attrs& attrs = kernel.call->attrs;
  if (!attrs.Has("dataset")) return 0;
  const std::string& name = attrs.String("dataset");
  const auto dataset_spec = DatasetSpec::Parse(name);
  if (!dataset_spec.ok()) return 0;
  const auto dataset = datasets.Open(*dataset_spec);
  if (!dataset.ok()) return 0;
  const int64_t held = read.insert(name).second ? (*dataset)->memory_bytes() : 0;
  return held + Sampler::MemoryBytes((*dataset)->num_samples(), attrs.Bool("shuffle"));
}

}  // namespace

NodeSummary SummarizeNode(const plan::NodePlan& plan, DatasetCache& datasets,
                          const std::function<KernelMemory(const plan::Task&)>& memory_of) {
  NodeSummary summary;
  summary.node = static_cast<int>(plan.node);
  summary.tasks = static_cast<int64_t>(plan.tasks.size());
  summary.link_bytes.assign(plan.links.begin(), plan.links.end());
  std::map<uint32_t, size_t> index_of;
  for (const plan::Arena& arena : plan.arenas) {
    index_of[arena.device] = summary.devices.size();
    DeviceMemory& device = summary.devices.emplace_back();
    device.node = summary.node;
    device.device = static_cast<int>(arena.device);
    device.type = arena.device_type;
    device.activations = static_cast<int64_t>(arena.bytes + arena.pinned_bytes);
    device.kernels = static_cast<int64_t>(arena.kept_bytes);
    for (uint64_t scratch : arena.scratch_bytes) {
      device.activations += static_cast<int64_t>(scratch);
    }
    device.variables = static_cast<int64_t>(arena.variable_bytes);
  }
  std::set<std::string> read;
  std::map<std::pair<uint32_t, uint32_t>, int64_t> shared;  // by device and thread
  std::map<plan::Collective::Shape, int64_t> of_collectives;
  for (const plan::Task& task : plan.tasks) {
    const auto found = index_of.find(task.device);
    if (found == index_of.end()) continue;
    DeviceMemory& device = summary.devices[found->second];
    if (const auto* collective = std::get_if<plan::Collective>(&task.work)) {
      const auto [bytes, is_new] = of_collectives.try_emplace(collective->shape());
      if (is_new) bytes->second = CollectiveMemoryBytes(CollectiveSpecOf(plan, task));
      device.collectives += bytes->second;
    } else if (const auto* compute = std::get_if<plan::Compute>(&task.work)) {
      const KernelMemory memory = memory_of(task);
      device.kernels += memory.own;
      int64_t& largest = shared[{task.device, task.id.thread}];
      largest = std::max(largest, memory.shared);
      for (const plan::Kernel& kernel : compute->kernels) {
        if (kernel.call->op == "read") device.data += ReaderBytes(kernel, datasets, read);
      }
    }
  }
  for (const auto& [at, bytes] : shared) summary.devices[index_of.at(at.first)].kernels += bytes;
  return summary;
}

void Encode(const NodeSummary& summary, control::NodeSummary& message) {
  message.set_tasks(static_cast<uint32_t>(summary.tasks));
  for (const DeviceMemory& memory : summary.devices) {
    control::NodeSummary::Device& device = *message.add_devices();
    device.set_device(static_cast<uint32_t>(memory.device));
    device.set_type(memory.type);
    device.set_activations(memory.activations);
    device.set_variables(memory.variables);
    device.set_kernels(memory.kernels);
    device.set_collectives(memory.collectives);
    device.set_data(memory.data);
  }
  for (const auto& [peer, bytes] : summary.link_bytes) {
    control::NodeSummary::LinkBytes& link = *message.add_links();
    link.set_peer(static_cast<uint32_t>(peer));
    link.set_bytes(bytes);
  }
}

NodeSummary Decode(const control::NodeSummary& message, int node) {
  NodeSummary summary;
  summary.node = node;
  summary.tasks = message.tasks();
  for (const control::NodeSummary::Device& device : message.devices()) {
    summary.devices.push_back({.node = node,
                               .device = static_cast<int>(device.device()),
                               .type = device.type(),
                               .activations = device.activations(),
                               .variables = device.variables(),
                               .kernels = device.kernels(),
                               .collectives = device.collectives(),
                               .data = device.data()});
  }
  for (const control::NodeSummary::LinkBytes& link : message.links()) {
    summary.link_bytes.emplace_back(static_cast<int>(link.peer()), link.bytes());
  }
  return summary;
}

}  // namespace braid
