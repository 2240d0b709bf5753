// What one edge costs a cluster: for every pair of 1-d layouts, between all nodes, between halves
// of them, and to and from one node, the time to route and build it and that in which a node
// expands its part.
//
//   build/release/bin/boxing_bench [NODES]   default: 1024, each of one device

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_format.h"
#include "compiler/boxing/boxing.h"
#include "compiler/boxing/edge.h"
#include "compiler/plan/expand.h"
#include "runtime/base/process_usage.h"

namespace {

using namespace braid;
using namespace braid::compiler;

// A group that makes the source layout, the edge, and one that reads what comes out.
PhysicalGraph Build(const BoxingEdge& edge, int nodes) {
  PhysicalGraph graph;
  graph.num_nodes = nodes;
  TaskGroup source;
  source.name = "source";
  source.placement = edge.source;
  Register made;
  made.name = "x";
  made.placement = edge.source;
  made.parts.emplace_back().layout = SourceLayout(edge);
  made.producer = 0;
  const GroupRegisterId start = graph.AddRegister(std::move(made)).id;
  source.outputs = {start};
  graph.AddGroup(std::move(source));
  BoxingPlanner planner;
  const auto [result, part] =
      BuildRoute(planner.Route(edge),
                 {.reg = start, .part = 0, .acts_per_step = 1, .name = "x", .location = {}}, graph);
  TaskGroup reader;
  reader.name = "reader";
  reader.placement = edge.destination;
  reader.inputs = {{.reg = result}};
  graph.AddGroup(std::move(reader));
  graph.LayOutParts();
  int64_t offset = 0;
  for (const Register& r : graph.registers()) {
    Register& reg = graph.reg(r.id);
    reg.offset = offset;
    offset += reg.slots * reg.slot_bytes;
  }
  for (const TaskGroup& g : graph.groups()) {
    auto* const compute = std::get_if<Compute>(&graph.group(g.id).work);
    if (compute == nullptr) continue;
    for (Scratch& scratch : compute->scratch) scratch.offset = 0;
  }
  return graph;
}

}  // namespace

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 1024;
  if (nodes < 2) {
    std::fprintf(stderr, "boxing_bench: %s nodes; 2 at least\n", argv[1]);
    return 1;
  }
  std::vector<DeviceId> devices;
  for (int node = 0; node < nodes; ++node) devices.push_back({node, 0});
  const Placement all("cpu", devices);
  struct Ends {
    const char* name;
    Placement source, destination;
  };
  const std::vector<Ends> all_ends = {
      {"all to all", all, all},
      {"half to half", all.Slice(0, nodes / 2), all.Slice(nodes / 2, nodes - nodes / 2)},
      {"one to all", all.Slice(0, 1), all},
      {"all to one", all, all.Slice(0, 1)}};
  const std::vector<Sbp> layouts = {sbp::S(0), sbp::S(1), sbp::B, sbp::P};
  double slowest = 0;
  for (const Ends& ends : all_ends) {
    for (const Sbp& from : layouts) {
      for (const Sbp& to : layouts) {
        BoxingEdge edge;
        edge.type = {DType::kF32, {4096, 4096}};
        edge.source = ends.source;
        edge.destination = ends.destination;
        edge.source_sbp = from;
        edge.destination_sbp = to;
        double begin = CpuSeconds();
        const PhysicalGraph graph = Build(edge, nodes);
        const double built = CpuSeconds() - begin;
        double expanded = 0;
        size_t tasks = 0;
        for (const int node : {0, nodes / 2, nodes - 1}) {
          begin = CpuSeconds();
          const auto part = ExpandPlan(graph, node);
          if (!part.ok()) {
            std::fprintf(stderr, "%s\n", std::string(part.status().message()).c_str());
            return 1;
          }
          expanded = std::max(expanded, CpuSeconds() - begin);
          tasks = std::max(tasks, part->tasks.size());
        }
        slowest = std::max(slowest, built + expanded);
        std::printf("%-12s %4s -> %-4s built in %.4f s, expanded in %.4f s (%zu tasks)\n",
                    ends.name, from.ToString().c_str(), to.ToString().c_str(), built, expanded,
                    tasks);
      }
    }
  }
  std::printf("%d nodes: the slowest edge takes %.4f s\n", nodes, slowest);
  return 0;
}
