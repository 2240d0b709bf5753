#include "tests/simulation/interleavings.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace braid {
namespace {

// States are told apart by 128 bits; two that collide would hide one of them.
using Digest = std::pair<uint64_t, uint64_t>;

Digest DigestOf(const std::vector<int64_t>& state) {
  const auto hash = [&state](uint64_t basis) {
    for (const int64_t value : state) {
      basis = SeededChoice(basis ^ static_cast<uint64_t>(value)).Next();
    }
    return basis;
  };
  return {hash(1), hash(0x9ddfea08eb382d69)};
}

// Choices to replay, then the first of everything; notes what else could have been chosen.
class Replay final : public Choice {
 public:
  explicit Replay(std::vector<uint64_t> choices) : choices_(std::move(choices)) {}

  uint64_t Below(uint64_t n) override {
    if (is_over_) return 0;
    const size_t at = number_++;
    if (at < choices_.size()) return choices_[at];
    choices_.push_back(0);
    alternatives_.push_back({at, n});
    return 0;
  }

  // From now on nothing is noted.
  void End() { is_over_ = true; }
  bool is_replaying() const { return number_ < choices_.size(); }
  const std::vector<uint64_t>& choices() const { return choices_; }

  struct Alternatives {
    size_t at;
    uint64_t number;
  };
  std::vector<Alternatives> TakeAlternatives() { return std::exchange(alternatives_, {}); }

 private:
  std::vector<uint64_t> choices_;
  std::vector<Alternatives> alternatives_;
  size_t number_ = 0;
  bool is_over_ = false;
};

class Search {
 public:
  Search(const MakeExploredRun& make, const ExploreOptions& options)
      : make_(make), options_(options) {}

  Exploration Go() {
    pending_.push_back({});
    while (!pending_.empty() && result_.failure.ok()) {
      if (result_.runs == options_.max_runs) {
        result_.is_complete = false;
        break;
      }
      Begin begin = std::move(pending_.back());
      pending_.pop_back();
      ++result_.runs;
      RunFrom(begin);
    }
    result_.states = static_cast<int64_t>(next_.size());
    if (next_.empty()) {
      result_.orders = static_cast<double>(result_.runs);
    } else if (result_.failure.ok() && result_.is_complete) {
      CountOrders();
    }
    return std::move(result_);
  }

 private:
  static constexpr int kNoState = -1;
  // A run to be made: the choices, and the state in which the last of them is new.
  struct Begin {
    std::vector<uint64_t> choices;
    int state = kNoState;
  };

  void RunFrom(const Begin& begin) {
    Replay replay(begin.choices);
    const std::unique_ptr<ExploredRun> run = make_(&replay);
    int state = begin.state;
    int events = 0;
    for (;; ++events) {
      if (!replay.is_replaying()) {
        const bool is_new = Enter(*run, &state);
        if (!is_new) break;
        if (absl::Status status = run->Check(); !status.ok()) {
          Fail(std::move(status), replay);
          break;
        }
      }
      const bool has_event = run->Step();
      for (const Replay::Alternatives& other : replay.TakeAlternatives())
        Note(replay, other, state);
      if (has_event) continue;
      ++result_.ends;
      if (absl::Status status = run->CheckEnd(); !status.ok()) Fail(std::move(status), replay);
      break;
    }
    result_.longest = std::max(result_.longest, events);
    replay.End();
  }

  // The run is in a state after `*state`, which becomes the new one. False if it was seen.
  bool Enter(const ExploredRun& run, int* state) {
    const std::vector<int64_t> now = run.State();
    if (now.empty()) return true;
    const auto [known, is_new] = numbers_.emplace(DigestOf(now), static_cast<int>(next_.size()));
    if (is_new) next_.emplace_back();
    if (*state != kNoState) {
      std::vector<int>& after = next_[*state];
      if (std::find(after.begin(), after.end(), known->second) == after.end()) {
        after.push_back(known->second);
        ++result_.transitions;
      }
    }
    *state = known->second;
    return is_new;
  }

  void Note(const Replay& replay, const Replay::Alternatives& other, int state) {
    const std::vector<uint64_t> before(replay.choices().begin(),
                                       replay.choices().begin() + other.at);
    const auto delays =
        std::count_if(before.begin(), before.end(), [](uint64_t choice) { return choice != 0; });
    if (options_.max_delays >= 0 && delays >= options_.max_delays) return;
    for (uint64_t choice = other.number - 1; choice >= 1; --choice) {
      pending_.push_back({before, state});
      pending_.back().choices.push_back(choice);
    }
  }

  void Fail(absl::Status status, const Replay& replay) {
    result_.failure = std::move(status);
    result_.choices = replay.choices();
  }

  // Paths from each state to an end, the last states first; on the way no state may come twice.
  void CountOrders() {
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(next_.size(), Mark::kNew);
    std::vector<double> paths(next_.size(), 0);
    std::vector<std::pair<int, size_t>> stack = {{0, 0}};
    marks[0] = Mark::kOpen;
    while (!stack.empty()) {
      auto& [state, at] = stack.back();
      if (at == next_[state].size()) {
        if (next_[state].empty()) paths[state] = 1;
        for (const int after : next_[state]) paths[state] += paths[after];
        marks[state] = Mark::kDone;
        stack.pop_back();
        continue;
      }
      const int after = next_[state][at++];
      if (marks[after] == Mark::kOpen) {
        result_.failure = absl::InternalError(
            absl::StrFormat("state %d comes back: events can go on without end", after));
        return;
      }
      if (marks[after] == Mark::kDone) continue;
      marks[after] = Mark::kOpen;
      stack.emplace_back(after, 0);
    }
    result_.orders = paths[0];
  }

  const MakeExploredRun& make_;
  const ExploreOptions options_;
  std::vector<Begin> pending_;  // a stack: depth first
  std::map<Digest, int> numbers_;
  std::vector<std::vector<int>> next_;  // by state
  Exploration result_;
};

}  // namespace

std::string Exploration::ToString() const {
  std::string text =
      absl::StrFormat("%d states, %d transitions, %.4g orders, %d ends, up to %d events; %d runs",
                      states, transitions, orders, ends, longest, runs);
  if (!is_complete) text += ", cut off there";
  if (!failure.ok()) {
    absl::StrAppendFormat(&text, "; %s after choices %s", failure.ToString(),
                          absl::StrJoin(choices, " "));
  }
  return text;
}

Exploration Explore(const MakeExploredRun& make, const ExploreOptions& options) {
  return Search(make, options).Go();
}

}  // namespace braid
