#include "tests/dist/mismatches.h"

#include "absl/time/clock.h"
#include "api/dist.h"
#include "api/dist_store.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using dist::ReduceOp;

dist::Reduction SumCalled(const std::string& name) {
  return dist::Reduction::By<float>(name, [](float a, float b) { return a + b; });
}

}  // namespace

std::vector<float>& Floats(int64_t count) {
  static thread_local std::vector<float> floats;
  floats.assign(count, 1);
  return floats;
}

absl::Status SumFour(dist::World& world) { return world.AllReduce(Floats(4)); }

RankProgram Apart(const RankProgram& even, const RankProgram& odd) {
  return [=](dist::World& world) { return world.rank() == 1 ? odd(world) : even(world); };
}

std::vector<Mismatch> PlainMismatches() {
  return {
      Mismatch{"Count",
               Apart(SumFour, [](auto& world) { return world.AllReduce(Floats(5)); }),
               {"the world: call 4 is not the same on all ranks",
                // Which of the others is compared with rank 1 hangs on who had come.
                "rank 0 (127.0.0.1) is in all_reduce of 4 f32, sum (mismatches.cc:|"
                "rank 2 in all_reduce of 4 f32, sum (mismatches.cc:",
                "rank 1 in all_reduce of 5 f32, sum (mismatches.cc:|"
                "rank 1 is in all_reduce of 5 f32, sum (mismatches.cc:"}},
      Mismatch{"Type",
               Apart(SumFour,
                     [](auto& world) {
                       std::vector<int32_t> data(4, 1);
                       return world.AllReduce(data);
                     }),
               {"all_reduce of 4 f32, sum", "all_reduce of 4 i32, sum"}},
      Mismatch{
          "Operation",
          Apart(SumFour, [](auto& world) { return world.AllReduce(Floats(4), ReduceOp::kMax); }),
          {"all_reduce of 4 f32, sum", "all_reduce of 4 f32, max"}},
      Mismatch{
          "Function",
          Apart(SumFour, [](auto& world) { return world.AllReduce(Floats(4), SumCalled("sum")); }),
          {"all_reduce of 4 f32, sum (", "all_reduce of 4 f32, by 'sum' ("}},
      Mismatch{"OtherFunction",
               Apart([](auto& world) { return world.Reduce(Floats(4), 2, SumCalled("mine")); },
                     [](auto& world) { return world.Reduce(Floats(4), 2, SumCalled("yours")); }),
               {"reduce of 4 f32, by 'mine', root 2", "reduce of 4 f32, by 'yours', root 2"}},
      Mismatch{"Kind",
               Apart(SumFour, [](auto& world) { return world.Broadcast(Floats(4), 1); }),
               {"all_reduce of 4 f32, sum", "broadcast of 4 f32, root 1"}},
      Mismatch{"Root",
               Apart([](auto& world) { return world.Broadcast(Floats(4), 0); },
                     [](auto& world) { return world.Broadcast(Floats(4), 1); }),
               {"broadcast of 4 f32, root 0", "broadcast of 4 f32, root 1"}},
      Mismatch{"Name",
               Apart(
                   [](auto& world) {
                     return world.AllReduce(Floats(4), ReduceOp::kSum, {.name = "weights"});
                   },
                   [](auto& world) {
                     return world.AllReduce(Floats(4), ReduceOp::kSum, {.name = "biases"});
                   }),
               {"'weights'", "'biases'"}},
      Mismatch{"Order",
               Apart(
                   [](auto& world) {
                     const absl::Status first = world.AllReduce(Floats(4));
                     return first.ok() ? world.Barrier() : first;
                   },
                   [](auto& world) {
                     const absl::Status first = world.Barrier();
                     return first.ok() ? world.AllReduce(Floats(4)) : first;
                   }),
               {"all_reduce of 4 f32, sum", "rank 1 in barrier|rank 1 is in barrier"}},
      Mismatch{"NothingMoves",  // of either call, so that no byte tells
               Apart([](auto& world) { return world.Broadcast(Floats(0), 0); },
                     [](auto& world) {
                       const absl::Status first = world.AllReduce(Floats(0));
                       return first.ok() ? world.AllReduce(Floats(8)) : first;
                     }),
               {"is not the same on all ranks"}},
      Mismatch{"Pair",
               [](dist::World& world) -> absl::Status {
                 // Rank 1 sends rank 2 four and rank 2 expects three.
                 std::vector<std::vector<int64_t>> sends = {{1, 1, 1}, {1, 1, 4}, {1, 1, 1}};
                 std::vector<std::vector<int64_t>> receives = {{1, 1, 1}, {1, 1, 1}, {1, 3, 1}};
                 const int rank = world.rank();
                 std::vector<float> input(rank == 1 ? 6 : 3), output(rank == 2 ? 5 : 3);
                 return world.AllToAll(input, output, sends[rank], receives[rank]);
               },
               {"rank 1 sends rank 2 4 elements in all_to_all of {1, 1, 4} f32",
                "which expects 3 in all_to_all of 1 f32"}},
      Mismatch{"Gather",
               [](dist::World& world) -> absl::Status {
                 std::vector<float> input(world.rank() == 2 ? 5 : 4), output(12);
                 return world.Gather(input, output, 0);
               },
               {"rank 2 sends rank 0 (127.0.0.1) 5 elements", "which expects 4"}},
      Mismatch{"SendCount",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() == 0) return world.Send(Floats(4), 2, 7);
                 if (world.rank() == 2) return world.Receive(Floats(5), 0, 7);
                 return absl::OkStatus();
               },
               {"the world: rank 0 (127.0.0.1) is in send of 4 f32 to rank 2, tag 7 (mism",
                "rank 2 in receive of 5 f32 from rank 0, tag 7 (mismatches.cc:",
                "what one sends must be what the other receives"}},
      Mismatch{"SendType",
               [](dist::World& world) -> absl::Status {
                 std::vector<int32_t> data(4);
                 if (world.rank() == 2) return world.Send(data, 1);
                 if (world.rank() == 1) return world.Receive(Floats(4), 2);
                 return absl::OkStatus();
               },
               {"send of 4 i32 to rank 1", "receive of 4 f32 from rank 2"}},
      Mismatch{"SendTag",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() == 0) return world.Send(Floats(4), 1, 1);
                 if (world.rank() == 1) return world.Receive(Floats(4), 0, 2);
                 return absl::OkStatus();
               },
               {"the world: ranks wait for each other", "send of 4 f32 to rank 1, tag 1",
                "receive of 4 f32 from rank 0, tag 2", "no call of these is ever done"}},
      Mismatch{"BothSend",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() == 2) return absl::OkStatus();
                 const absl::Status sent = world.Send(Floats(4), 1 - world.rank());
                 return sent.ok() ? world.Receive(Floats(4), 1 - world.rank()) : sent;
               },
               {"ranks wait for each other", "send of 4 f32 to rank 1, tag 0",
                "send of 4 f32 to rank 0, tag 0"}},
      Mismatch{"ARingOfReceives",
               [](dist::World& world) -> absl::Status {
                 const absl::Status received = world.Receive(Floats(4), (world.rank() + 2) % 3);
                 return received.ok() ? world.Send(Floats(4), (world.rank() + 1) % 3) : received;
               },
               {"ranks wait for each other", "receive of 4 f32 from rank 2",
                "receive of 4 f32 from rank 1", "receive of 4 f32 from rank 0"}},
      Mismatch{"AReceiveAndABarrier",
               Apart([](auto& world) { return world.Barrier(); },
                     [](auto& world) { return world.Receive(Floats(1), 0); }),
               {"ranks wait for each other", "is in barrier", "receive of 1 f32 from rank 0"}},
      Mismatch{"ASendToItself",
               [](dist::World& world) -> absl::Status {
                 return world.rank() == 1 ? world.Send(Floats(1), 1) : absl::OkStatus();
               },
               {"a rank waits for itself", "send of 1 f32 to rank 1"}},
      Mismatch{"OtherThingsToItself",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() != 1) return absl::OkStatus();
                 return world.Exchange({dist::Transfer::SendTo(1, Floats(1)),
                                        dist::Transfer::ReceiveFrom(1, Floats(2))});
               },
               {"to itself", "send of 1 f32 to rank 1", "receive of 2 f32 from rank 1"}},
      Mismatch{"ASenderThatEnds",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() == 1) return world.Close();
                 if (world.rank() == 0) return world.Receive(Floats(4), 1);
                 return absl::OkStatus();
               },
               {"rank 1 has ended its part", "waits for it in receive of 4 f32 from rank 1",
                "its last call here was call 3, barrier"}},
      Mismatch{"ASenderThatDoesNotCome",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() == 1) absl::SleepFor(absl::Seconds(1));
                 if (world.rank() != 0) return absl::OkStatus();
                 return world.Receive(Floats(4), 1, 3, {.timeout = absl::Milliseconds(500)});
               },
               {"receive of 4 f32 from rank 1, tag 3", "was not done within 0.5 s: waited for",
                "its last call here was call 3, barrier"},
               absl::Seconds(2)},
      Mismatch{"ARankThatEnds",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() == 1) return world.Close();
                 return world.AllReduce(Floats(4));
               },
               {"rank 1 has ended its part", "waits for it in call 4, all_reduce of 4 f32, sum",
                "its last call here was call 3, barrier"}},
      Mismatch{"ARankThatDoesNotCome",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() == 1) absl::SleepFor(absl::Seconds(1));
                 return world.AllReduce(Floats(4), ReduceOp::kSum,
                                        {.timeout = absl::Milliseconds(500)});
               },
               {"call 4, all_reduce of 4 f32, sum", "was not done within 0.5 s: waited for rank 1",
                "its last call here was call 3, barrier"},
               absl::Seconds(2)},
      Mismatch{
          "TwoGroups",
          [](dist::World& world) -> absl::Status {
            BRAID_ASSIGN_OR_RETURN(const auto group, world.NewGroup({0, 1, 2}));
            const dist::CallOptions options = {.timeout = absl::Milliseconds(1500)};
            if (world.rank() == 1) return group->Barrier(options);
            return world.AllReduce(Floats(4), ReduceOp::kSum, options);
          },
          {"was not done within 1.5 s: waited for",
           "it is in barrier (mismatches.cc:|it is in all_reduce of 4 f32, sum (mismatches.cc:",
           "ranks wait for each other in several groups: rank 0 (127.0.0.1) is in all_reduce",
           ", of group 2 of ranks 0, 1, 2, and waits for a call of rank 0",
           "none of these is ever done, unless"},
          absl::Seconds(3)},
      Mismatch{"ARankThatWaitsInTheStore",
               [](dist::World& world) -> absl::Status {
                 if (world.rank() == 1) return world.store().Get("nothing").status();
                 return world.AllReduce(Floats(4), ReduceOp::kSum,
                                        {.timeout = absl::Milliseconds(500)});
               },
               {"waited for rank 1 (it is in Store::Get (mismatches.cc:"},
               absl::Seconds(2)}};
}

MismatchEnd RunMismatch(dist::World& world, const Mismatch& mismatch) {
  const auto before = [&]() -> absl::Status {
    std::vector<float> data(1000, 1);
    for (int i = 0; i < 3; ++i) {
      BRAID_RETURN_IF_ERROR(world.AllReduce(data, ReduceOp::kMax));
      if (data[999] != 1) return absl::DataLossError("a wrong number");
    }
    return world.Barrier();
  };
  MismatchEnd end;
  if (end.status = before(); !end.status.ok()) return end;
  const absl::Time began = absl::Now();
  end.status = mismatch.program(world);
  // A rank whose own call is done finds out at its next one.
  if (end.status.ok()) end.status = world.Barrier();
  end.took = absl::Now() - began;
  if (end.status.ok()) {
    end.status = absl::InternalError("nothing failed");
    return end;
  }
  std::vector<float> data(1000, 1);
  const absl::Status later = world.AllReduce(data);
  if (later != end.status) {
    end.status = absl::InternalError("another error later: " + later.ToString());
  }
  return end;
}

}  // namespace braid
