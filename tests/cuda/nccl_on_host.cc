// NCCL among the cards of one process that are the host's memory (module_on_host.cc). They may be
// those of several nodes.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/cuda/nccl_table.h"
#include "tests/cuda/collective_parts.h"
#include "tests/cuda/engine_on_host.h"

namespace braid::cuda {
namespace {

constexpr Error kSystemError = 2, kRemoteError = 6;  // ncclResult_t

// What the members of a communicator share.
struct NcclWorld {
  std::mutex mutex;
  int32_t members = 0, joined = 0;
  bool has_lost = false;  // a member
  std::map<int64_t, std::vector<CollectivePart>> under_way;
  Mark done;  // as many as are
};

struct FakeCommunicator {
  std::shared_ptr<NcclWorld> world;
  int64_t begun = 0;
};

std::shared_ptr<NcclWorld> WorldOf(const void* word) {
  static std::mutex mutex;
  static std::map<uint64_t, std::shared_ptr<NcclWorld>> worlds;
  uint64_t number = 0;
  std::memcpy(&number, word, sizeof number);
  const std::lock_guard lock(mutex);
  std::shared_ptr<NcclWorld>& world = worlds[number];
  if (world == nullptr) world = std::make_shared<NcclWorld>();
  return world;
}

void Lose(NcclWorld& world) {
  {
    const std::lock_guard lock(world.mutex);
    world.has_lost = true;
    world.under_way.clear();
  }
  TheEngine().Reach(&world.done, std::numeric_limits<int64_t>::max());
}

// Collectives that were carried out.
std::atomic<int64_t>& TheCollectives() {
  static std::atomic<int64_t> collectives = 0;
  return collectives;
}

// A member's stream has come to a collective.
void ComeTo(NcclWorld& world, int64_t number, const CollectivePart& part) {
  std::vector<CollectivePart> all;
  {
    const std::lock_guard lock(world.mutex);
    if (world.has_lost) return;
    std::vector<CollectivePart>& parts = world.under_way[number];
    parts.resize(world.members);
    parts[part.call.rank] = part;
    for (const CollectivePart& each : parts) {
      if (each.counts.empty()) return;  // has not come
    }
    all = std::move(parts);
    world.under_way.erase(number);
  }
  if (number == Setting("BRAID_FAKE_NCCL_FAILS", -1)) return Lose(world);
  CarryOut(all);
  ++TheCollectives();
  TheEngine().Reach(&world.done, number + 1);
}

}  // namespace

NcclTable MakeNcclTable() {
  static const int placeholder = 0;
  NcclTable nccl = {};
  nccl.open = [](const char*, char* text, uint64_t text_bytes) -> void* {
    if (Setting("BRAID_FAKE_NCCL", 0) > 0) return const_cast<int*>(&placeholder);
    std::snprintf(text, text_bytes, "libnccl.so.2 was looked for");
    return nullptr;
  };
  nccl.version = [](const void*) { return static_cast<int32_t>(Setting("BRAID_FAKE_NCCL", 0)); };
  nccl.error_text = [](const void*, Error error) {
    return error == kRemoteError ? "remote process exited" : "unhandled system error";
  };
  nccl.make_word = [](const void*, void* word) {
    static std::atomic<uint64_t> next = 1;
    const uint64_t number = next++;
    std::memcpy(word, &number, sizeof number);
    return kDone;
  };
  nccl.join = [](const void*, const void* word, int32_t members, int32_t, void** communicator) {
    const std::shared_ptr<NcclWorld> world = WorldOf(word);
    const std::lock_guard lock(world->mutex);
    if (++world->joined > members) return kSystemError;
    world->members = members;
    *communicator = new FakeCommunicator{.world = world};
    return kNotReady;
  };
  nccl.state = [](void* communicator) {
    NcclWorld& world = *static_cast<FakeCommunicator*>(communicator)->world;
    const std::lock_guard lock(world.mutex);
    if (world.has_lost) return kRemoteError;
    return world.joined < world.members ? kNotReady : kDone;
  };
  nccl.collect = [](void* communicator, const NcclCall& call, void* stream) {
    auto& at = *static_cast<FakeCommunicator*>(communicator);
    const size_t members = static_cast<size_t>(call.members);
    const bool has_one =
        call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kBroadcast;
    CollectivePart part{.call = call,
                        .counts = {call.counts, call.counts + (has_one ? 1 : members)}};
    const int64_t number = at.begun++;
    Later(stream, [world = at.world, number, part] { ComeTo(*world, number, part); });
    TheEngine().Push(StreamOf(stream), {.wait = &at.world->done, .count = number + 1});
    return kDone;
  };
  nccl.end = [](void* communicator) {
    auto* const at = static_cast<FakeCommunicator*>(communicator);
    Lose(*at->world);
    delete at;
  };
  return nccl;
}

}  // namespace braid::cuda

extern "C" __attribute__((visibility("default"))) int64_t BraidFakeNcclCollectives() {
  return braid::cuda::TheCollectives();
}
