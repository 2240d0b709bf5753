// Ranks whose batches of calls are not the same.
#include <functional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/dist_batch.h"
#include "tests/dist/mismatches.h"

namespace braid {
namespace {

using dist::ReduceOp;

// A batch that begins alike on all ranks, so that what differs is the second part.
RankProgram InBatch(const std::function<void(dist::Batch& batch)>& add,
                    const dist::CallOptions& options = {}) {
  return [=](dist::World& world) {
    std::vector<float> first(3, 1);
    dist::Batch batch;
    batch.AllReduce(first);
    add(batch);
    return world.Run(batch, options);
  };
}

void AddSumOfFour(dist::Batch& batch) { batch.AllReduce(Floats(4)); }

}  // namespace

std::vector<Mismatch> BatchMismatches() {
  return {Mismatch{"PartCount",
                   Apart(InBatch(AddSumOfFour), InBatch([](auto& b) { b.AllReduce(Floats(5)); })),
                   {"the world: call 4 is not the same on all ranks",
                    "is in a batch of 2 (batch_mismatches.cc:",
                    "; part 2 is all_reduce of 4 f32, sum (batch_mismatches.cc:|"
                    "; part 2 is all_reduce of 5 f32, sum (batch_mismatches.cc:",
                    " on rank 1, and all_reduce of 4 f32, sum|, and all_reduce of 5 f32, sum"}},
          Mismatch{"PartOperation",
                   Apart(InBatch(AddSumOfFour),
                         InBatch([](auto& b) { b.AllReduce(Floats(4), ReduceOp::kMax); })),
                   {"; part 2 is all_reduce of 4 f32, ", "sum (batch_mis", "max (batch_mis"}},
          Mismatch{"PartRoot",
                   Apart(InBatch([](auto& b) { b.Reduce(Floats(4), 1); }),
                         InBatch([](auto& b) { b.Reduce(Floats(4), 2); })),
                   {"; part 2 is reduce of 4 f32, sum, root ", "root 1 (batch_mis",
                    "root 2 (batch_mis"}},
          Mismatch{"PartMissing",
                   Apart(InBatch(AddSumOfFour), InBatch([](auto&) {})),
                   {"a batch of 2 (", "part 1 of a batch of 1 (", "; part 2 is ", "missing on "}},
          // The same bytes in all.
          Mismatch{"PartsOfOneSize",
                   Apart(InBatch([](auto& b) { b.Broadcast(Floats(6), 0); }), InBatch([](auto& b) {
                           static thread_local std::vector<float> other(2);
                           b.Broadcast(Floats(4), 0);
                           b.Broadcast(other, 0);
                         })),
                   {"; part 2 is broadcast of ", "broadcast of 6 f32", "broadcast of 4 f32"}},
          Mismatch{"PartPair",  // which only two ranks know of
                   [](dist::World& world) {
                     std::vector<std::vector<int64_t>> sends = {{1, 1, 1}, {1, 1, 4}, {1, 1, 1}};
                     std::vector<std::vector<int64_t>> receives = {{1, 1, 1}, {1, 1, 1}, {1, 3, 1}};
                     const int rank = world.rank();
                     std::vector<float> input(rank == 1 ? 6 : 3), output(rank == 2 ? 5 : 3);
                     return InBatch([&](dist::Batch& batch) {
                       batch.AllToAll(input, output, sends[rank], receives[rank]);
                     })(world);
                   },
                   {"rank 1 sends rank 2 4 elements in all_to_all of {1, 1, 4} f32",
                    ", part 2 of a batch of 2 (", "which expects 3 in all_to_all of 1 f32"}},
          Mismatch{"BatchName",
                   Apart(InBatch(AddSumOfFour, {.name = "weights"}),
                         InBatch(AddSumOfFour, {.name = "biases"})),
                   {"a batch of 2, 'weights' (", "a batch of 2, 'biases' ("}},
          Mismatch{"BatchAndCall",
                   Apart(InBatch(AddSumOfFour), SumFour),
                   {"a batch of 2 (", "all_reduce of 4 f32, sum (mism"}},
          Mismatch{"BatchThatDoesNotCome",
                   Apart(InBatch(AddSumOfFour, {.timeout = absl::Milliseconds(500)}),
                         [](auto&) {
                           absl::SleepFor(absl::Seconds(1));
                           return absl::OkStatus();
                         }),
                   {"call 4, a batch of 2 (", "was not done within 0.5 s: waited for rank 1"},
                   absl::Seconds(2)}};
}

}  // namespace braid
