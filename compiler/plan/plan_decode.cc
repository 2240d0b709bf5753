#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "compiler/plan/invariants.h"
#include "compiler/plan/plan.pb.h"
#include "compiler/plan/plan_codec.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// The most devices, micro-batches and acts that a plan may speak of, and the most bytes of a
// tensor: products of what is below stay far from the ends of int64_t.
constexpr uint32_t kMostDevices = 1 << 20;
constexpr uint32_t kMostActs = 1 << 24;
constexpr int64_t kMostBytes = int64_t{1} << 56;

template <typename... Args>
absl::Status Wrong(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InvalidArgumentError("the plan is wrong: " + absl::StrFormat(format, args...));
}

absl::StatusOr<Sbp> SbpOf(uint32_t number) {
  const Sbp sbp{static_cast<Sbp::Kind>(number % 8), static_cast<int>(number / 8)};
  if (sbp.kind > Sbp::Kind::kMirrored || (!sbp.is_split() && sbp.axis != 0)) {
    return Wrong("%d is no SBP", number);
  }
  return sbp;
}

using Work = decltype(TaskGroup::work);
constexpr size_t kNumWorks = std::variant_size_v<Work>;

// The alternative of that number, as by default.
template <size_t... kNumbers>
Work WorkOf(size_t number, std::index_sequence<kNumbers...>) {
  Work work;
  ((number == kNumbers ? void(work.emplace<kNumbers>()) : void()), ...);
  return work;
}

class Decoder {
 public:
  absl::StatusOr<PhysicalGraph> Decode(std::string_view bytes) {
    if (bytes.size() > std::numeric_limits<int>::max() ||
        !plan_.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return Wrong("its %d bytes cannot be read", bytes.size());
    }
    if (plan_.version() != kPlanVersion) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the plan is of version %d, this program reads version %d; start the same binary on "
          "every node",
          plan_.version(), kPlanVersion));
    }
    graph_.job = plan_.job();
    graph_.seed = plan_.seed();
    if (plan_.num_nodes() < 1 || plan_.num_nodes() > kMostDevices) {
      return Wrong("it is for %d nodes", plan_.num_nodes());
    }
    graph_.num_nodes = static_cast<int>(plan_.num_nodes());
    BRAID_ASSIGN_OR_RETURN(graph_.micro_batches, Count(plan_.micro_batches(), "micro-batches"));
    auto texts =
        std::make_shared<std::vector<std::string>>(plan_.texts().begin(), plan_.texts().end());
    graph_.texts = texts;
    BRAID_RETURN_IF_ERROR(ReadKinds());
    if (plan_.hosts_size() != 0 && plan_.hosts_size() != graph_.num_nodes) {
      return Wrong("hosts of %d nodes, and it is for %d", plan_.hosts_size(), graph_.num_nodes);
    }
    graph_.hosts.assign(plan_.hosts().begin(), plan_.hosts().end());
    for (const plan::PlacementEntry& entry : plan_.placements()) {
      BRAID_RETURN_IF_ERROR(AddPlacement(entry));
    }
    for (const plan::LayoutEntry& entry : plan_.layouts()) BRAID_RETURN_IF_ERROR(AddLayout(entry));
    for (const plan::RegisterEntry& entry : plan_.registers())
      BRAID_RETURN_IF_ERROR(AddRegister(entry));
    for (const plan::Group& entry : plan_.groups()) BRAID_RETURN_IF_ERROR(AddGroup(entry));
    BRAID_RETURN_IF_ERROR(PlaceRegisters());
    for (const TaskGroup& group : graph_.groups()) BRAID_RETURN_IF_ERROR(CheckLayouts(group));
    if (const absl::Status status = VerifyInvariants(graph_); !status.ok()) {
      return Wrong("%s", std::string(status.message()));
    }
    for (const TaskGroup& group : graph_.groups()) BRAID_RETURN_IF_ERROR(CheckGroup(group));
    return std::move(graph_);
  }

 private:
  absl::StatusOr<std::string_view> Text(uint32_t number) const {
    if (number >= graph_.texts->size()) {
      return Wrong("text %d of %d", number, graph_.texts->size());
    }
    return (*graph_.texts)[number];
  }

  static absl::StatusOr<int> Count(uint32_t n, std::string_view what) {
    if (n < 1 || n > kMostActs) return Wrong("%d %s", n, what);
    return static_cast<int>(n);
  }
  static absl::StatusOr<int> ZeroIsOne(uint32_t n, std::string_view what) {
    return Count(n == 0 ? 1 : n, what);
  }

  static absl::StatusOr<int64_t> Bytes(uint64_t n, std::string_view what) {
    if (n > static_cast<uint64_t>(kMostBytes)) return Wrong("%s %d", what, n);
    return static_cast<int64_t>(n);
  }

  absl::Status ReadKinds() {
    std::vector<DeviceKind> kinds;
    for (const plan::KindEntry& entry : plan_.kinds()) {
      BRAID_ASSIGN_OR_RETURN(const std::string_view name, Text(entry.name()));
      if (entry.nodes() > plan_.num_nodes() - kinds.size()) {
        return Wrong("devices '%s' on %d nodes after %d of %d", name, entry.nodes(), kinds.size(),
                     plan_.num_nodes());
      }
      kinds.insert(kinds.end(), entry.nodes(),
                   {.name = std::string(name),
                    .is_host = !entry.is_queueing(),
                    .does_collectives = entry.does_collectives(),
                    .collects_in_any_order = entry.collects_in_any_order()});
    }
    graph_.kinds = NodeKinds(std::move(kinds));
    return absl::OkStatus();
  }

  absl::Status AddPlacement(const plan::PlacementEntry& entry) {
    if (entry.runs_size() % 3 != 0) return Wrong("a placement of %d numbers", entry.runs_size());
    std::vector<DeviceId> devices;
    for (int i = 0; i < entry.runs_size(); i += 3) {
      const uint32_t node = entry.runs(i), first = entry.runs(i + 1), count = entry.runs(i + 2);
      if (node >= plan_.num_nodes() || first >= kMostDevices || count > kMostDevices ||
          devices.size() + count > kMostDevices) {
        return Wrong("%d devices from %d on of node %d, of %d nodes", count, first, node,
                     plan_.num_nodes());
      }
      for (uint32_t j = 0; j < count; ++j) {
        devices.push_back({static_cast<int>(node), static_cast<int>(first + j)});
      }
    }
    num_devices_ += devices.size();
    if (devices.empty() || num_devices_ > 64 * size_t{kMostDevices}) {
      return Wrong("placement %d has %d devices", placements_.size(), devices.size());
    }
    BRAID_ASSIGN_OR_RETURN(const std::string_view type, Text(entry.device_type()));
    BRAID_ASSIGN_OR_RETURN(Placement placement,
                           Placement::Make(std::string(type), std::move(devices),
                                           {entry.hierarchy().begin(), entry.hierarchy().end()}));
    placements_.push_back(std::move(placement));
    return absl::OkStatus();
  }

  absl::Status AddLayout(const plan::LayoutEntry& entry) {
    TensorLayout layout;
    if (entry.dtype() > static_cast<uint32_t>(kLastDType)) {
      return Wrong("type %d of a tensor", entry.dtype());
    }
    layout.type.dtype = static_cast<DType>(entry.dtype());
    int64_t bytes = static_cast<int64_t>(SizeOf(layout.type.dtype));
    std::vector<int64_t> dims(entry.shape().begin(), entry.shape().end());
    for (int64_t dim : dims) {
      if (dim < 0 || dim > kMostBytes ||
          __builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes) || bytes > kMostBytes) {
        return Wrong("layout %d has a dimension of %d", layouts_.size(), dim);
      }
    }
    layout.type.shape = Shape(std::move(dims));
    const auto check = [&](const Sbp& sbp) {
      return sbp.is_split() && sbp.axis >= layout.type.shape.rank()
                 ? Wrong("layout %d, %s, splits axis %d", layouts_.size(), layout.type.ToString(),
                         sbp.axis)
                 : absl::OkStatus();
    };
    std::vector<Sbp> dims_sbp;
    for (uint32_t number : entry.sbp()) {
      BRAID_ASSIGN_OR_RETURN(const Sbp sbp, SbpOf(number));
      BRAID_RETURN_IF_ERROR(check(sbp));
      dims_sbp.push_back(sbp);
    }
    layout.sbp = NdSbp(std::move(dims_sbp));
    BRAID_ASSIGN_OR_RETURN(layout.micro_batches, ZeroIsOne(entry.micro_batches(), "micro-batches"));
    if (entry.micro_batches() != 0) {
      BRAID_ASSIGN_OR_RETURN(layout.micro_batch_sbp, SbpOf(entry.micro_batch_sbp()));
      BRAID_RETURN_IF_ERROR(check(layout.micro_batch_sbp));
      if (layout.micro_batch_sbp.is_split() &&
          layout.type.shape[layout.micro_batch_sbp.axis] % layout.micro_batches != 0) {
        return Wrong("layout %d, %s, in %d micro-batches along axis %d", layouts_.size(),
                     layout.type.ToString(), layout.micro_batches, layout.micro_batch_sbp.axis);
      }
    }
    layouts_.push_back(std::move(layout));
    return absl::OkStatus();
  }

  absl::StatusOr<Placement> PlacementAt(uint32_t number) const {
    if (number >= placements_.size()) {
      return Wrong("placement %d of %d", number, placements_.size());
    }
    return placements_[number];
  }

  absl::StatusOr<TensorLayout> LayoutAt(uint32_t number) const {
    if (number >= layouts_.size()) return Wrong("layout %d of %d", number, layouts_.size());
    return layouts_[number];
  }

  absl::StatusOr<SourceLocation> LocationOf(const plan::Location& entry) const {
    BRAID_ASSIGN_OR_RETURN(const std::string_view file, Text(entry.file()));
    return SourceLocation{file, static_cast<int>(entry.line() & 0x7fffffff)};
  }

  absl::StatusOr<Attrs> AttrsAt(uint32_t number) {
    const auto found = attrs_.find(number);
    if (found != attrs_.end()) return found->second;
    BRAID_ASSIGN_OR_RETURN(const std::string_view text, Text(number));
    BRAID_ASSIGN_OR_RETURN(Attrs attrs, Attrs::Parse(text));
    return attrs_.emplace(number, std::move(attrs)).first->second;
  }

  absl::Status ReadOperands(const google::protobuf::RepeatedField<uint32_t>& numbers,
                            std::vector<OperandRef>& refs,
                            std::vector<TensorLayout>& layouts) const {
    if (numbers.size() % 3 != 0) return Wrong("operands of %d numbers", numbers.size());
    for (int i = 0; i < numbers.size(); i += 3) {
      const uint32_t source = numbers[i] % 4;
      if (numbers[i + 1] > std::numeric_limits<int>::max()) {
        return Wrong("operand %d, part %d", numbers[i], numbers[i + 1]);
      }
      refs.push_back({static_cast<OperandRef::Source>(source), static_cast<int>(numbers[i] / 4),
                      static_cast<int>(numbers[i + 1])});
      BRAID_ASSIGN_OR_RETURN(layouts.emplace_back(), LayoutAt(numbers[i + 2]));
    }
    return absl::OkStatus();
  }

  absl::Status AddRegister(const plan::RegisterEntry& entry) {
    Register reg;
    if (entry.offsets_size() != entry.layouts_size() ||
        (entry.variables_size() != 0 && entry.variables_size() != entry.layouts_size())) {
      return Wrong("a register of %d layouts, %d offsets and %d variables", entry.layouts_size(),
                   entry.offsets_size(), entry.variables_size());
    }
    for (int i = 0; i < entry.layouts_size(); ++i) {
      Part& part = reg.parts.emplace_back();
      BRAID_ASSIGN_OR_RETURN(part.layout, LayoutAt(entry.layouts(i)));
      BRAID_ASSIGN_OR_RETURN(part.offset, Bytes(entry.offsets(i), "a part at byte"));
      if (entry.variables_size() == 0) continue;
      BRAID_ASSIGN_OR_RETURN(part.variable, Text(entry.variables(i)));
    }
    if (entry.more_slots() >= kMostActs || entry.initial_tokens() > kMostActs) {
      return Wrong("a register of %d slots and one, %d of them full", entry.more_slots(),
                   entry.initial_tokens());
    }
    reg.slots = static_cast<int>(entry.more_slots()) + 1;
    BRAID_ASSIGN_OR_RETURN(reg.period, ZeroIsOne(entry.period(), "acts a slot"));
    reg.initial_tokens = static_cast<int>(entry.initial_tokens());
    BRAID_ASSIGN_OR_RETURN(reg.slot_bytes, Bytes(entry.slot_bytes(), "a slot of bytes:"));
    BRAID_ASSIGN_OR_RETURN(reg.offset, Bytes(entry.offset(), "a register at byte"));
    --reg.offset;
    if (entry.memory() > static_cast<uint32_t>(MemoryKind::kPinned)) {
      return Wrong("a register in memory of kind %d", entry.memory());
    }
    reg.memory = static_cast<MemoryKind>(entry.memory());
    reg.is_by_lane = entry.by_lane();
    BRAID_ASSIGN_OR_RETURN(const int64_t gap, Bytes(entry.gap(), "slots that lie apart by"));
    int64_t all = 0;
    if (__builtin_add_overflow(reg.slot_bytes, gap, &reg.stride) ||
        __builtin_mul_overflow(reg.stride, int64_t{reg.slots}, &all) || all > kMostBytes) {
      return Wrong("a register of %d slots of %d bytes with %d bytes between them", reg.slots,
                   reg.slot_bytes, gap);
    }
    graph_.AddRegister(std::move(reg));
    return absl::OkStatus();
  }

  absl::StatusOr<Register*> RegisterAt(uint32_t number) {
    if (number >= graph_.registers().size()) {
      return Wrong("register %d of %d", number, graph_.registers().size());
    }
    return &graph_.reg(static_cast<GroupRegisterId>(number));
  }

  absl::Status AddGroup(const plan::Group& entry) {
    TaskGroup group;
    BRAID_ASSIGN_OR_RETURN(group.name, Text(entry.name()));
    if (entry.kind() >= kNumWorks || entry.stream() >= static_cast<uint32_t>(kNumStreams)) {
      return Wrong("group '%s' is of kind %d, on stream %d", group.name, entry.kind(),
                   entry.stream());
    }
    BRAID_ASSIGN_OR_RETURN(group.placement, PlacementAt(entry.placement()));
    group.stream = static_cast<StreamKind>(entry.stream());
    BRAID_ASSIGN_OR_RETURN(group.acts_per_step, ZeroIsOne(entry.acts_per_step(), "acts a step"));
    group.is_deferrable = entry.deferrable();
    if (entry.inputs_size() % 2 != 0) {
      return Wrong("inputs of %d numbers in group '%s'", entry.inputs_size(), group.name);
    }
    for (int i = 0; i < entry.inputs_size(); i += 2) {
      BRAID_ASSIGN_OR_RETURN(const Register* reg, RegisterAt(entry.inputs(i)));
      BRAID_ASSIGN_OR_RETURN(const int period, ZeroIsOne(entry.inputs(i + 1), "acts a slot"));
      group.inputs.push_back({.reg = reg->id, .period = period});
    }
    const auto id = static_cast<GroupId>(graph_.groups().size());
    for (uint32_t output : entry.outputs()) {
      BRAID_ASSIGN_OR_RETURN(Register * reg, RegisterAt(output));
      if (reg->producer != kNone) return Wrong("register %d has two producers", output);
      reg->producer = id;
      group.outputs.push_back(reg->id);
    }
    group.work = WorkOf(entry.kind(), std::make_index_sequence<kNumWorks>());
    BRAID_RETURN_IF_ERROR(
        std::visit([&](auto& work) { return ReadWork(entry, group, work); }, group.work));
    BRAID_ASSIGN_OR_RETURN(group.location, LocationOf(entry.location()));
    graph_.AddGroup(std::move(group));
    return absl::OkStatus();
  }

  absl::Status ReadWork(const plan::Group& entry, const TaskGroup& group, Compute& compute) {
    BRAID_RETURN_IF_ERROR(ReadKernels(entry, compute.kernels));
    if (entry.scratch_size() != entry.scratch_offsets_size()) {
      return Wrong("%d scratch tensors at %d offsets", entry.scratch_size(),
                   entry.scratch_offsets_size());
    }
    for (int i = 0; i < entry.scratch_size(); ++i) {
      Scratch& scratch = compute.scratch.emplace_back();
      BRAID_ASSIGN_OR_RETURN(scratch.layout, LayoutAt(entry.scratch(i)));
      BRAID_ASSIGN_OR_RETURN(scratch.offset, Bytes(entry.scratch_offsets(i), "scratch at byte"));
    }
    for (uint32_t number : entry.kept()) {
      if (number >= compute.scratch.size()) {
        return Wrong("group '%s' keeps scratch %d, it has %d", group.name, number,
                     compute.scratch.size());
      }
      compute.scratch[number].is_kept = true;
    }
    if (entry.served_size() % 2 != 0 || entry.lanes() > kMostActs) {
      return Wrong("%d lanes and variables of %d numbers in group '%s'", entry.lanes(),
                   entry.served_size(), group.name);
    }
    for (int i = 0; i < entry.served_size(); i += 2) {
      ServedVariable& variable = compute.served.emplace_back();
      BRAID_ASSIGN_OR_RETURN(variable.name, Text(entry.served(i)));
      BRAID_ASSIGN_OR_RETURN(variable.layout, LayoutAt(entry.served(i + 1)));
    }
    compute.lanes = static_cast<int>(entry.lanes());
    for (const plan::Turns& turns : entry.turns()) {
      BRAID_RETURN_IF_ERROR(ReadTurns(turns, group.name, compute));
    }
    return absl::OkStatus();
  }

  absl::Status ReadWork(const plan::Group& entry, const TaskGroup& group, Exchange& exchange) {
    if (entry.movement().lanes() > static_cast<uint32_t>(Exchange::Lanes::kPush)) {
      return Wrong("'%s' goes by lanes of kind %d", group.name, entry.movement().lanes());
    }
    exchange.lanes = static_cast<Exchange::Lanes>(entry.movement().lanes());
    return ReadMovement(entry.movement(), group, exchange.movement);
  }

  absl::Status ReadWork(const plan::Group& entry, const TaskGroup& group, Collective& collective) {
    const plan::Movement& movement = entry.movement();
    BRAID_RETURN_IF_ERROR(ReadMovement(movement, group, collective.movement));
    collective.kind = static_cast<CollectiveKind>(movement.collective());
    collective.hierarchy_dim = static_cast<int>(movement.hierarchy_dim()) - 1;
    BRAID_ASSIGN_OR_RETURN(collective.on_one_node, MethodOf(movement.on_one_node(), group));
    BRAID_ASSIGN_OR_RETURN(collective.between_nodes, MethodOf(movement.between_nodes(), group));
    BRAID_ASSIGN_OR_RETURN(collective.between_hosts, MethodOf(movement.between_hosts(), group));
    return absl::OkStatus();
  }

  absl::Status ReadWork(const plan::Group& entry, const TaskGroup&, VariableOwner& owner) {
    return ReadKernels(entry, owner.kernels);
  }

  static absl::Status ReadWork(const plan::Group&, const TaskGroup&, Staging&) {
    return absl::OkStatus();
  }

  absl::Status ReadKernels(const plan::Group& entry, std::vector<KernelCall>& kernels) {
    for (const plan::KernelCall& kernel : entry.kernels()) {
      KernelCall& call = kernels.emplace_back();
      BRAID_ASSIGN_OR_RETURN(call.op, Text(kernel.op()));
      BRAID_ASSIGN_OR_RETURN(call.name, Text(kernel.name()));
      BRAID_ASSIGN_OR_RETURN(call.attrs, AttrsAt(kernel.attrs()));
      BRAID_ASSIGN_OR_RETURN(call.location, LocationOf(kernel.location()));
      BRAID_RETURN_IF_ERROR(ReadOperands(kernel.inputs(), call.inputs, call.input_layouts));
      BRAID_RETURN_IF_ERROR(ReadOperands(kernel.outputs(), call.outputs, call.output_layouts));
    }
    return absl::OkStatus();
  }

  static absl::Status ReadTurns(const plan::Turns& entry, std::string_view name, Compute& compute) {
    const size_t kernels = compute.kernels.size(), scratch = compute.scratch.size();
    if (entry.begin() > kernels || entry.count() > kernels - entry.begin()) {
      return Wrong("turns of %d kernels from %d on in group '%s', which has %d", entry.count(),
                   entry.begin(), name, kernels);
    }
    Turns& turns = compute.turns.emplace_back();
    turns.begin = static_cast<int>(entry.begin());
    turns.end = turns.begin + static_cast<int>(entry.count());
    BRAID_ASSIGN_OR_RETURN(turns.part, Bytes(entry.part(), "turns of elements:"));
    for (uint32_t number : entry.staying()) {
      if (number >= scratch) {
        return Wrong("scratch %d stays in group '%s', which has %d", number, name, scratch);
      }
      turns.staying.push_back(static_cast<int>(number));
    }
    return absl::OkStatus();
  }

  absl::Status ReadMovement(const plan::Movement& entry, const TaskGroup& group,
                            Movement& movement) const {
    if (entry.part() > kMostActs ||
        entry.collective() > static_cast<uint32_t>(CollectiveKind::kAllToAll) ||
        entry.hierarchy_dim() > group.placement.hierarchy().size() ||
        entry.reduction() > static_cast<uint32_t>(Sbp::Kind::kPartialMin)) {
      return Wrong("'%s' moves part %d, as collective %d, in dimension %d, reducing by %d",
                   group.name, entry.part(), entry.collective(), entry.hierarchy_dim(),
                   entry.reduction());
    }
    movement.part = static_cast<int>(entry.part());
    BRAID_ASSIGN_OR_RETURN(movement.source, LayoutAt(entry.source()));
    BRAID_ASSIGN_OR_RETURN(movement.destination, LayoutAt(entry.destination()));
    movement.reduction = static_cast<Sbp::Kind>(entry.reduction());
    return absl::OkStatus();
  }

  static absl::StatusOr<CollectiveMethod> MethodOf(const plan::Method& method,
                                                   const TaskGroup& group) {
    const auto algorithm = static_cast<CollectiveAlgorithm>(method.algorithm());
    if (method.algorithm() > std::numeric_limits<uint8_t>::max() ||
        CollectiveAlgorithmName(algorithm) == "unknown") {
      return Wrong("'%s' is done by algorithm %d", group.name, method.algorithm());
    }
    BRAID_ASSIGN_OR_RETURN(const int64_t chunk_bytes,
                           Bytes(method.chunk_bytes(), "chunks of bytes:"));
    return CollectiveMethod{.algorithm = algorithm, .chunk_bytes = chunk_bytes};
  }

  absl::Status PlaceRegisters() {
    for (int i = 0; i < plan_.registers_size(); ++i) {
      Register& reg = graph_.reg(i);
      if (reg.producer == kNone) return Wrong("no group produces register %d", i);
      const TaskGroup& producer = graph_.group(reg.producer);
      reg.placement = producer.placement;
      if (plan_.registers(i).placement() != 0) {
        BRAID_ASSIGN_OR_RETURN(reg.placement, PlacementAt(plan_.registers(i).placement() - 1));
      }
      for (const Part& part : reg.parts) {
        BRAID_RETURN_IF_ERROR(CheckFits(part.layout, reg.placement, producer));
      }
    }
    return absl::OkStatus();
  }

  // ---- what VerifyInvariants takes for granted -------------------------------------------------

  static absl::Status CheckFits(const TensorLayout& layout, const Placement& placement,
                                const TaskGroup& group) {
    if (layout.sbp.rank() == static_cast<int>(placement.hierarchy().size())) {
      return absl::OkStatus();
    }
    return Wrong("group '%s' has %s on %s", group.name, layout.ToString(), placement.ToString());
  }

  static absl::Status CheckLayouts(const TaskGroup& group) {
    for (const KernelCall& call : group.kernels()) {
      for (const auto* layouts : {&call.input_layouts, &call.output_layouts}) {
        for (const TensorLayout& layout : *layouts) {
          BRAID_RETURN_IF_ERROR(CheckFits(layout, group.placement, group));
        }
      }
    }
    if (const auto* const compute = std::get_if<Compute>(&group.work)) {
      for (const Scratch& scratch : compute->scratch) {
        BRAID_RETURN_IF_ERROR(CheckFits(scratch.layout, group.placement, group));
      }
      for (const ServedVariable& variable : compute->served) {
        BRAID_RETURN_IF_ERROR(CheckFits(variable.layout, group.placement, group));
      }
    }
    return absl::OkStatus();
  }

  // ---- what it does not ask ---------------------------------------------------------------------

  absl::Status CheckGroup(const TaskGroup& group) const {
    for (GroupRegisterId id : group.outputs)
      BRAID_RETURN_IF_ERROR(CheckOutput(group, graph_.reg(id)));
    const Movement* const movement = group.movement();
    return movement != nullptr ? CheckMovement(*movement, group) : absl::OkStatus();
  }

  static absl::Status CheckOutput(const TaskGroup& group, const Register& reg) {
    for (const Part& part : reg.parts) {
      const bool has_place = reg.offset >= 0 || !part.variable.empty() || reg.is_by_lane;
      if (!has_place || part.variable.empty() == group.is<VariableOwner>()) {
        return Wrong("'%s' fills register %d, which is at byte %d and holds variable '%s'",
                     group.name, reg.id, reg.offset, part.variable);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckMovement(const Movement& movement, const TaskGroup& group) const {
    const TensorLayout& source = movement.source;
    const TensorLayout& destination = movement.destination;
    const Register& in = graph_.reg(group.inputs[0].reg);
    BRAID_RETURN_IF_ERROR(CheckFits(destination, group.placement, group));
    const Placement& from = group.is<Exchange>() ? in.placement : group.placement;
    BRAID_RETURN_IF_ERROR(CheckFits(source, from, group));
    const bool same = source.type == destination.type &&
                      source.micro_batch_sbp == destination.micro_batch_sbp &&
                      source.micro_batches == destination.micro_batches;
    if (!same) {
      return Wrong("'%s' moves %s to %s", group.name, source.ToString(), destination.ToString());
    }
    for (const TensorLayout* layout : {&source, &destination}) {
      std::set<Sbp::Kind> partial;
      for (const Sbp& sbp : layout->sbp.dims()) {
        if (sbp.is_partial()) partial.insert(sbp.kind);
        if (sbp.is_mirrored() && group.is<Exchange>()) {
          return Wrong("'%s' moves %s, which each device has for itself", group.name,
                       layout->ToString());
        }
      }
      if (partial.size() > 1) {
        return Wrong("'%s' moves %s, two kinds of partial values", group.name, layout->ToString());
      }
    }
    return absl::OkStatus();
  }

  plan::Plan plan_;
  PhysicalGraph graph_;
  std::vector<Placement> placements_;
  size_t num_devices_ = 0;  // of all placements
  std::vector<TensorLayout> layouts_;
  std::map<uint32_t, Attrs> attrs_;
};

}  // namespace

absl::StatusOr<PhysicalGraph> DecodePlan(std::string_view bytes) { return Decoder().Decode(bytes); }

}  // namespace braid::compiler
