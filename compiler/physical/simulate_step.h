// One abstract step of a whole graph: groups as actors that only count. Slots, periods and initial
// tokens are as at run time; a group acts as one, which any number of devices can follow, since an
// act can only be enabled by others. Shared by slot assignment, memory planning and verification.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// The graph is borrowed and must be well formed (VerifyInvariants).
class StepSimulation {
 public:
  explicit StepSimulation(const PhysicalGraph& graph);

  // Lets groups act until none can. True if every group did its acts of one step; every register
  // then holds its initial tokens again, because acts and periods are balanced.
  bool Run();

  // Why a group cannot act: `group` waits for `on`, at register `reg`.
  struct Wait {
    GroupId group = kNone;
    GroupRegisterId reg = kNone;
    bool for_slot = false;  // that `on` gives a slot back; else that it fills one
    GroupId on = kNone;
  };
  // After Run() was false: groups that wait for each other, each for the next, the last for the
  // first.
  std::vector<Wait> FindCycle() const;

  int slots(GroupRegisterId reg) const { return registers_[reg].slots; }
  // One slot more; Run() then goes on from where it stood.
  void AddSlot(GroupRegisterId reg);

 private:
  struct End {  // of a register
    GroupId group = kNone;
    int index = 0;  // of the group's inputs
  };
  struct RegisterState {
    int slots = 1;
    int sent = 0;                   // pieces; initial tokens count
    int fills = 0;                  // acts that wrote the piece being filled
    std::vector<int> readers_left;  // per piece that was sent
    std::vector<End> consumers;
  };
  struct InputState {
    int consumed = 0;  // pieces
    int uses = 0;
  };
  struct GroupState {
    int acts = 0;
    int missing = 0;  // ends that are not ready
    bool is_queued = false;
    std::vector<InputState> inputs;
  };

  bool IsFree(const RegisterState& reg) const {
    return reg.sent < reg.slots || reg.readers_left[reg.sent - reg.slots] == 0;
  }
  void Queue(GroupId id);
  void Act(GroupId id);
  Wait WaitOf(GroupId id) const;

  const PhysicalGraph& graph_;
  std::vector<RegisterState> registers_;
  std::vector<GroupState> groups_;
  std::vector<GroupId> queue_;
  size_t done_ = 0;  // groups
};

// "'a' waits for register 'x' of 'b' ... (matmul 'fc1', train.cc:12)", one line a wait.
std::string DescribeWaits(const PhysicalGraph& graph, const StepSimulation& simulation,
                          const std::vector<StepSimulation::Wait>& waits);

}  // namespace braid::compiler
