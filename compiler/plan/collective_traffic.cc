#include "compiler/plan/collective_traffic.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/sbp.h"
#include "runtime/base/members_by_host.h"

namespace braid::compiler {
namespace {

class Counting {
 public:
  Counting(const plan::Collective& collective, size_t members)
      : collective_(collective),
        size_(static_cast<int>(members)),
        me_(static_cast<int>(collective.rank)),
        all_(std::accumulate(collective.counts.begin(), collective.counts.end(), int64_t{0})),
        sent_(members, 0) {}

  std::vector<int64_t> Take() { return std::move(sent_); }

  void AddPairs() { sent_ = collective_.counts; }

  // Of all members.
  void AddRing() { AddRing((me_ + 1) % size_, all_); }

  void AddRing(const std::vector<int>& members) {
    int64_t whole = 0;
    for (const int member : members) whole += Block(member);
    const size_t place = std::ranges::find(members, me_) - members.begin();
    AddRing(members[(place + 1) % members.size()], whole);
  }

  // A block passes every hop of a ring but the one into where it starts (gathering) or out of where
  // it ends (reducing). `whole`: of the blocks of its members.
  void AddRing(int next, int64_t whole) {
    if (Gathers()) sent_[next] += whole - Block(next);
    if (Reduces()) sent_[next] += whole - Block(me_);
  }

  // The members in one place of every host have a ring; those of a host give each other what they
  // have of the others' blocks there, and what they have in the end.
  void AddHosts(const std::vector<std::vector<int>>& hosts) {
    const std::vector<int>& own = *std::ranges::find_if(hosts, [&](const auto& members) {
      return std::ranges::find(members, me_) != members.end();
    });
    const size_t my_place = std::ranges::find(own, me_) - own.begin();
    for (size_t place = 0; place < own.size(); ++place) {
      if (place == my_place) continue;
      for (const std::vector<int>& host : hosts) {
        if (Reduces()) sent_[own[place]] += Block(host[place]);
        if (Gathers()) sent_[own[place]] += Block(host[my_place]);
      }
    }
    std::vector<int> in_my_place;
    for (const std::vector<int>& host : hosts) in_my_place.push_back(host[my_place]);
    AddRing(in_my_place);
  }

  // In steps of twice as many, what each has: of an all_reduce the whole of each member.
  void AddDoubling() {
    for (int distance = 1; distance < size_; distance *= 2) {
      int64_t& to = sent_[(me_ + size_ - distance) % size_];
      for (int i = 0; i < std::min(distance, size_ - distance); ++i) {
        to += Reduces() ? all_ : Block((me_ + i) % size_);
      }
    }
  }

 private:
  bool Gathers() const { return collective_.kind != CollectiveKind::kReduceScatter; }
  bool Reduces() const { return collective_.kind != CollectiveKind::kAllGather; }
  int64_t Block(int member) const {
    return collective_.kind == CollectiveKind::kAllReduce ? SplitEvenly(all_, size_, member).size
                                                          : collective_.counts[member];
  }

  const plan::Collective& collective_;
  const int size_;
  const int me_;
  const int64_t all_;
  std::vector<int64_t> sent_;
};

}  // namespace

std::vector<int64_t> ElementsSent(const plan::Collective& collective,
                                  std::span<const uint32_t> hosts) {
  Counting counting(collective, hosts.size());
  if (collective.kind == CollectiveKind::kAllToAll) {
    counting.AddPairs();
  } else if (collective.algorithm == CollectiveAlgorithm::kHierarchical) {
    counting.AddHosts(MembersByHost(hosts));
  } else if (collective.algorithm == CollectiveAlgorithm::kDoubling) {
    counting.AddDoubling();
  } else {
    counting.AddRing();
  }
  return counting.Take();
}

}  // namespace braid::compiler
