// How long a collective of a plan takes between devices of one process: each member has a thread,
// as a device has, and writes its data anew before each call. Prints a line for each size: bytes,
// and the median microseconds of a call; every result is checked.
//
//   direct_bench [DEVICES] [CALLS]     2 devices, 300 calls
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "comm/collective/collective.h"
#include "comm/collective/collective_hub.h"
#include "glog/logging.h"
#include "graph/dtype.h"
#include "graph/sbp.h"
#include "runtime/base/reactor.h"
#include "runtime/device/box.h"
#include "runtime/device/host_memory.h"

namespace {

using namespace braid;
using Clock = std::chrono::steady_clock;

// One device's end, which calls again and again.
class Caller {
 public:
  Caller(Environment& environment, CollectiveHub& hub, const CollectiveSpec& spec, int calls)
      : rank_(spec.my_rank),
        calls_(calls),
        sum_(static_cast<float>(spec.members.size() * (spec.members.size() + 1) / 2)),
        data_(spec.counts[0]),
        is_done_(environment.MakeEvent()),
        reactor_(environment.StartReactor("device " + std::to_string(rank_))) {
    auto collective = hub.Create(spec, *reactor_, AllocateHostMemory);
    CHECK(collective.ok()) << collective.status();
    collective_ = *std::move(collective);
  }
  ~Caller() {
    reactor_->Post([this] {
      collective_.reset();
      is_gone_ = true;
      is_gone_.notify_one();
    });
    is_gone_.wait(false);
  }

  void Start() {
    reactor_->Post([this] { Call(0); });
  }
  void Await(Environment& environment) { CHECK(environment.Await(*is_done_, kForever).ok()); }
  double median() {
    std::ranges::nth_element(microseconds_, microseconds_.begin() + calls_ / 2);
    return microseconds_[calls_ / 2];
  }

 private:
  void Call(int call) {
    if (call == calls_) return is_done_->Set();
    std::ranges::fill(data_, static_cast<float>(rank_ + 1));
    begin_ = Clock::now();
    collective_->Start(call, data_.data(), data_.data(), [this, call](const absl::Status& status) {
      microseconds_.push_back(
          std::chrono::duration<double, std::micro>(Clock::now() - begin_).count());
      CHECK(status.ok()) << status;
      CHECK(std::ranges::all_of(data_, [this](float x) { return x == sum_; })) << "wrong sum";
      reactor_->Post([this, call] { Call(call + 1); });
    });
  }

  const int rank_;
  const int calls_;
  const float sum_;
  std::vector<float> data_;
  std::vector<double> microseconds_;
  Clock::time_point begin_;
  const std::unique_ptr<Event> is_done_;
  std::atomic<bool> is_gone_{false};
  std::unique_ptr<Collective> collective_;
  std::unique_ptr<Reactor> reactor_;
};

void Measure(int devices, int64_t bytes, int calls, CollectiveAlgorithm algorithm) {
  const std::unique_ptr<Environment> environment = MakeRealEnvironment();
  CollectiveHub hub(0);
  CollectiveSpec spec{.name = "sum",
                      .kind = CollectiveKind::kAllReduce,
                      .element_size = sizeof(float),
                      .counts = {bytes / static_cast<int64_t>(sizeof(float))},
                      .reduce = CombineFunction(DType::kF32, Sbp::Kind::kPartialSum),
                      .algorithm = algorithm};
  for (int i = 0; i < devices; ++i) spec.members.push_back({.device = static_cast<uint32_t>(i)});
  std::vector<std::unique_ptr<Caller>> callers;
  for (spec.my_rank = 0; spec.my_rank < devices; ++spec.my_rank) {
    callers.push_back(std::make_unique<Caller>(*environment, hub, spec, calls));
  }
  hub.Connect([](const absl::Status& status) { CHECK(status.ok()) << status; });
  for (const auto& caller : callers) caller->Start();
  for (const auto& caller : callers) caller->Await(*environment);
  std::printf(" %10.1f", callers[0]->median());
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 2, calls = 300;
  if (argc > 3 || (argc > 1 && (!absl::SimpleAtoi(argv[1], &devices) || devices < 1)) ||
      (argc > 2 && (!absl::SimpleAtoi(argv[2], &calls) || calls < 1))) {
    std::fprintf(stderr, "usage: direct_bench [DEVICES] [CALLS]\n");
    return 1;
  }
  std::printf("     bytes     direct direct_by_one\n");
  for (const int64_t bytes : {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}) {
    std::printf("%10lld", static_cast<long long>(bytes));
    for (const auto algorithm : {CollectiveAlgorithm::kDirect, CollectiveAlgorithm::kDirectByOne}) {
      Measure(devices, bytes, calls, algorithm);
    }
    std::printf("\n");
  }
  return 0;
}
