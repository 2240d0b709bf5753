// A module for CUDA whose cards are this machine's memory: kernels run on the host
// (cuda_on_host.h), later than they are queued, the streams of a card in an order that is drawn.
// What its environment says breaks it, as real machines are broken:
//   BRAID_FAKE_CARDS=N          cards, by default 2; 0: none
//   BRAID_FAKE_DRIVER=12040     the driver's version; 0: no driver
//   BRAID_FAKE_CAPABILITY=7     the cards'
//   BRAID_FAKE_MEMORY=BYTES     of a card
//   BRAID_FAKE_REACH=0          cards do not see each other's memory
//   BRAID_FAKE_CAPTURES=0       streams capture nothing
//   BRAID_FAKE_FAILS_AFTER=N    the card is lost after so many pieces of work
//   BRAID_FAKE_BUILD=TEXT       the fingerprint
//   BRAID_FAKE_APART=1          a card that is described again is another one, as if nodes of one
//                               process were on several machines
//   BRAID_FAKE_NCCL=22809       NCCL's version, which works among the cards of one process; 0: none
//   BRAID_FAKE_NCCL_FAILS=N     its N-th collective, counted from 0, finds that a member has gone
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/module_table.h"
#include "tests/cuda/engine_on_host.h"
#include "tests/cuda/programs_on_host.h"
#include "tests/support/cuda_on_host.h"

namespace braid::cuda {
namespace {

constexpr Error kInvalidValue = 1;          // cudaErrorInvalidValue
constexpr Error kOutOfMemory = 2;           // cudaErrorMemoryAllocation
constexpr Error kInsufficientDriver = 35;   // cudaErrorInsufficientDriver
constexpr Error kNoDevice = 100;            // cudaErrorNoDevice
constexpr Error kPeersUnsupported = 217;    // cudaErrorPeerAccessUnsupported
constexpr Error kCaptureUnsupported = 900;  // cudaErrorStreamCaptureUnsupported

// Of graphs.
std::atomic<int64_t>& TheLaunches() {
  static std::atomic<int64_t> launches = 0;
  return launches;
}

struct Memory {
  std::mutex mutex;
  std::map<void*, uint64_t> blocks;
  std::map<const std::byte*, uint64_t> pinned;
  struct Part {
    uint64_t bytes = 0;
    int32_t card = 0;
  };
  std::map<const std::byte*, Part> of_cards;
  uint64_t used = 0;

  // -1: the host's.
  int32_t CardOf(const void* address) {
    const std::lock_guard lock(mutex);
    const auto* at = static_cast<const std::byte*>(address);
    auto part = of_cards.upper_bound(at);
    if (part == of_cards.begin()) return -1;
    --part;
    return at < part->first + part->second.bytes ? part->second.card : -1;
  }

  // Whether a copy would leave the block of pinned memory that it begins in, which CUDA refuses.
  bool LeavesBlock(const void* address, uint64_t bytes) {
    const std::lock_guard lock(mutex);
    const auto* from = static_cast<const std::byte*>(address);
    auto block = pinned.upper_bound(from);
    if (block == pinned.begin()) return false;
    --block;
    const std::byte* const end = block->first + block->second;
    return from < end && from + bytes > end;
  }
};
Memory& TheMemory() {
  static Memory memory;
  return memory;
}
uint64_t CardBytes() {
  return static_cast<uint64_t>(Setting("BRAID_FAKE_MEMORY", int64_t{4} << 30));
}

void DescribeMachine(ModuleTable& table) {
  static const std::string build = [] {
    const char* text = std::getenv("BRAID_FAKE_BUILD");
    return std::string(text == nullptr ? BRAID_CUDA_FINGERPRINT : text);
  }();
  table.fingerprint = build.c_str();
  table.count_cards = [](Error* error) -> int32_t {
    *error = Setting("BRAID_FAKE_DRIVER", 13000) < 13000 ? kInsufficientDriver : kDone;
    const auto cards = static_cast<int32_t>(Setting("BRAID_FAKE_CARDS", 2));
    if (*error == kDone && cards == 0) *error = kNoDevice;
    return *error == kDone ? cards : 0;
  };
  table.versions = [](int32_t* driver, int32_t* runtime) {
    *driver = static_cast<int32_t>(Setting("BRAID_FAKE_DRIVER", 13000));
    *runtime = 13000;
    return kDone;
  };
  table.describe = [](int32_t card, CardInfo* info) {
    *info = {};
    std::strcpy(info->name, "a card on the host");
    info->major = static_cast<int32_t>(Setting("BRAID_FAKE_CAPABILITY", 9));
    info->multiprocessors = 2;
    info->bytes = CardBytes();
    static std::atomic<int32_t> described = 0;
    // Another process has other memory.
    const int32_t id[] = {getpid(), card, Setting("BRAID_FAKE_APART", 0) == 0 ? 0 : ++described};
    std::memcpy(info->id, id, sizeof id);
    return kDone;
  };
  table.free_memory = [](int32_t, uint64_t* bytes) {
    const std::lock_guard lock(TheMemory().mutex);
    *bytes = CardBytes() - TheMemory().used;
    return kDone;
  };
  table.error_name = [](Error error) {
    return error == kIllegalAddress       ? "cudaErrorIllegalAddress"
           : error == kOutOfMemory        ? "cudaErrorMemoryAllocation"
           : error == kInsufficientDriver ? "cudaErrorInsufficientDriver"
           : error == kNoDevice           ? "cudaErrorNoDevice"
                                          : "cudaErrorUnknown";
  };
  table.error_text = [](Error error) {
    return error == kIllegalAddress ? "an illegal memory access was encountered" : "as named";
  };
}

void LendMemory(ModuleTable& table) {
  table.allocate = [](int32_t card, uint64_t bytes, void** address) {
    Memory& memory = TheMemory();
    const std::lock_guard lock(memory.mutex);
    if (memory.used + bytes > CardBytes()) return kOutOfMemory;
    *address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    memory.blocks[*address] = bytes;
    memory.of_cards[static_cast<const std::byte*>(*address)] = {.bytes = bytes, .card = card};
    memory.used += bytes;
    return kDone;
  };
  table.free = [](int32_t, void* address) {
    Memory& memory = TheMemory();
    const std::lock_guard lock(memory.mutex);
    memory.used -= memory.blocks[address];
    memory.blocks.erase(address);
    memory.of_cards.erase(static_cast<const std::byte*>(address));
    std::free(address);
  };
  table.reserve = [](int32_t card, uint64_t most_bytes, Range* range) {
    void* const at = mmap(nullptr, most_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return kOutOfMemory;
    range->card = card;
    range->address = at;
    range->reserved = most_bytes;
    const std::lock_guard lock(TheMemory().mutex);
    TheMemory().of_cards[static_cast<const std::byte*>(at)] = {.bytes = most_bytes, .card = card};
    return kDone;
  };
  table.extend = [](Range* range, uint64_t bytes) {
    const std::lock_guard lock(TheMemory().mutex);
    if (bytes > range->reserved || TheMemory().used + bytes - range->usable > CardBytes()) {
      return kOutOfMemory;
    }
    TheMemory().used += bytes - range->usable;
    range->usable = bytes;
    return kDone;
  };
  table.release = [](Range* range) {
    if (range->address == nullptr) return;
    const std::lock_guard lock(TheMemory().mutex);
    TheMemory().used -= range->usable;
    TheMemory().of_cards.erase(static_cast<const std::byte*>(range->address));
    munmap(range->address, range->reserved);
    *range = {};
  };
  table.pin = [](void* address, uint64_t bytes) {
    const std::lock_guard lock(TheMemory().mutex);
    TheMemory().pinned[static_cast<const std::byte*>(address)] = bytes;
    return kDone;
  };
  table.unpin = [](void* address) {
    const std::lock_guard lock(TheMemory().mutex);
    TheMemory().pinned.erase(static_cast<const std::byte*>(address));
  };
  table.allow_peer = [](int32_t, int32_t) {
    return Setting("BRAID_FAKE_REACH", 1) == 0 ? kPeersUnsupported : kDone;
  };
  table.share = [](Range* range, int32_t other) {
    range->others |= uint64_t{1} << other;
    return kDone;
  };
}

void MakeStreams(ModuleTable& table) {
  table.make_stream = [](int32_t, void** stream) {
    cuda_on_host::Later() = Later;
    *stream = TheEngine().AddStream();
    return kDone;
  };
  table.destroy_stream = [](int32_t, void* stream) { TheEngine().RemoveStream(StreamOf(stream)); };
  table.make_event = [](int32_t, void** event) {
    *event = new Mark;
    return kDone;
  };
  table.destroy_event = [](int32_t, void* event) { delete static_cast<Mark*>(event); };
  table.record = [](int32_t, void* event, void* stream) {
    TheEngine().Push(StreamOf(stream), {.record = static_cast<Mark*>(event)});
    return kDone;
  };
  table.wait = [](int32_t, void* stream, void* event) {
    TheEngine().Push(StreamOf(stream), {.wait = static_cast<Mark*>(event)});
    return kDone;
  };
  table.copy = [](int32_t, void* to, const void* from, uint64_t bytes, void* stream) {
    if (TheEngine().is_lost()) return kIllegalAddress;
    for (const void* address : {static_cast<const void*>(to), from}) {
      if (TheMemory().LeavesBlock(address, bytes)) return kInvalidValue;
    }
    const int32_t card = TheMemory().CardOf(to), other = TheMemory().CardOf(from);
    if (card >= 0 && other >= 0 && card != other && Setting("BRAID_FAKE_REACH", 1) == 0) {
      return kInvalidValue;
    }
    Later(stream, [=] { std::memmove(to, from, bytes); });
    return kDone;
  };
  table.card_of = [](const void* address, int32_t* card) {
    *card = TheMemory().CardOf(address);
    return kDone;
  };
  table.copy_across = [](int32_t, void* to, int32_t, const void* from, uint64_t bytes,
                         void* stream) {
    if (TheEngine().is_lost()) return kIllegalAddress;
    Later(stream, [=] { std::memmove(to, from, bytes); });
    return kDone;
  };
  table.clear = [](int32_t, void* to, uint64_t bytes, void* stream) {
    Later(stream, [=] { std::memset(to, 0, bytes); });
    return kDone;
  };
  table.call_host = [](int32_t, void* stream, void (*function)(void*), void* argument) {
    if (TheEngine().is_lost()) return kIllegalAddress;
    Later(stream, [=] { function(argument); });
    return kDone;
  };
  table.begin_capture = [](int32_t, void* stream) {
    if (Setting("BRAID_FAKE_CAPTURES", 1) == 0) return kCaptureUnsupported;
    StreamOf(stream)->captured = std::make_unique<FakeGraph>();
    return kDone;
  };
  table.end_capture = [](int32_t, void* stream, void** graph) {
    *graph = StreamOf(stream)->captured.release();
    return *graph == nullptr ? kCaptureUnsupported : kDone;
  };
  table.launch_graph = [](int32_t, void* graph, void* stream) {
    ++TheLaunches();
    for (const Item& item : *static_cast<FakeGraph*>(graph)) {
      TheEngine().Push(StreamOf(stream), item);
    }
    return kDone;
  };
  table.destroy_graph = [](int32_t, void* graph) { delete static_cast<FakeGraph*>(graph); };
  table.stream_state = [](int32_t, void* stream) { return TheEngine().StateOf(StreamOf(stream)); };
}

ModuleTable MakeTable() {
  ModuleTable table = {};
  DescribeMachine(table);
  LendMemory(table);
  MakeStreams(table);
  table.use_card = [](int32_t) { return kDone; };
  table.open_libraries = [](const char*) -> void* { return nullptr; };
  table.missing_libraries = [](const void*) { return ""; };
  table.close_libraries = [](void*) {};
  table.kernels = MakeKernelTable();
  table.nccl = MakeNcclTable();
  table.compiler = MakeCompilerTable();
  table.programs = MakeProgramTable();
  return table;
}

}  // namespace
}  // namespace braid::cuda

extern "C" __attribute__((visibility("default"))) int64_t BraidFakeGraphLaunches() {
  return braid::cuda::TheLaunches();
}

extern "C" __attribute__((visibility("default"))) const braid::cuda::ModuleTable*
BraidCudaModule() {
  static const braid::cuda::ModuleTable table = braid::cuda::MakeTable();
  return &table;
}
