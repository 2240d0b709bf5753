// The process groups that a node is a member of: gives them the frames of its links, and the master
// what it asks about them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/group/group_end.h"

namespace braid {

namespace control {
class ControlMessage;
}  // namespace control

namespace dist {

// Everything happens on the node's control thread.
class Groups {
 public:
  struct Options {
    uint16_t node = 0;
    Reactor* reactor = nullptr;  // borrowed
    AllocateMemory allocate;
    std::function<void(const control::ControlMessage&)> send;  // to the master
    std::function<void(const absl::Status& cause)> fail;       // the session
    // What the program waits in beside its groups: "Store::Get (train.cc:12)". Null: nothing.
    std::function<std::vector<std::string>()> waits;
  };
  explicit Groups(Options options) : options_(std::move(options)) {}
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // Which all links are of, until Close is done.
  void SetPeers(Peers* peers);

  // Which machine each node is on. Before the first group is opened.
  void SetMachines(const std::map<uint16_t, std::string>& machines);

  // Once an id; ids of one node grow. Fills in where the ranks are.
  void Open(GroupIdentity identity);
  // As GroupEnd::Start. A group that was closed answers with the reason, but still drops windows.
  void Start(uint64_t group, GroupCall call, std::function<void(absl::Status)> done);
  // As GroupEnd's; false if it is not open.
  bool IsDirect(uint64_t group) const;
  std::string LastAlgorithm(uint64_t group) const;  // "" if it is not open
  // The program makes no calls any more: who waits for one is told so. `left` as each GroupEnd's,
  // once.
  void Leave(std::function<void()> left);

  void OnRollCall(const control::RollCall& call);
  // Another node wants a link to this one.
  void OnDial(uint16_t node);

  // Ends all groups, also later ones; `closed` once, maybe inside this call.
  void Close(const absl::Status& reason, std::function<void()> closed);

 private:
  absl::Status OnFrame(uint16_t peer, std::span<const std::byte> bytes);
  // What else than this group the program waits in.
  void TellElsewhere(uint64_t group, control::RollAnswer& answer) const;

  const Options options_;
  Peers* peers_ = nullptr;
  std::map<uint16_t, uint32_t> hosts_;  // of nodes: equal for those on one machine
  std::map<uint64_t, std::unique_ptr<GroupEnd>> groups_;
  // For groups that are not here yet.
  std::vector<std::pair<uint16_t, GroupFrame>> early_;
  bool has_left_ = false;
  absl::Status closed_;
  int closing_ = 0;
};

}  // namespace dist
}  // namespace braid
