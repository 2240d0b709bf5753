// NCCL. Its calls do not block: what they begin goes on while somebody asks for the state.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>

#include "runtime/cuda/module_table.h"
#include "runtime/kernels/cuda/shared_library.h"

namespace braid::cuda {
namespace {

constexpr char kFile[] = "libnccl.so." BRAID_TEXT_OF(NCCL_MAJOR);
static_assert(kNcclWordBytes == sizeof(ncclUniqueId));

struct Nccl {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetUniqueId) make_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  int version = 0;
};

bool FindAll(FunctionFinder finder, Nccl& nccl) {
  return finder.Find("ncclGetVersion", nccl.get_version)
      .Find("ncclGetErrorString", nccl.error_string)
      .Find("ncclGetUniqueId", nccl.make_id)
      .Find("ncclCommInitRankConfig", nccl.init)
      .Find("ncclCommGetAsyncError", nccl.async_error)
      .Find("ncclCommAbort", nccl.abort)
      .Find("ncclGroupStart", nccl.group_start)
      .Find("ncclGroupEnd", nccl.group_end)
      .Find("ncclAllReduce", nccl.all_reduce)
      .Find("ncclReduce", nccl.reduce)
      .Find("ncclReduceScatter", nccl.reduce_scatter)
      .Find("ncclAllGather", nccl.all_gather)
      .Find("ncclBroadcast", nccl.broadcast)
      .Find("ncclSend", nccl.send)
      .Find("ncclRecv", nccl.receive)
      .has_all();
}

struct Communicator {
  const Nccl* nccl = nullptr;
  ncclComm_t comm = nullptr;
};

Error Code(ncclResult_t result) {
  if (result == ncclInProgress) return kNotReady;
  return result == ncclSuccess ? kDone : static_cast<Error>(result);
}

void* Open(const char* folders, char* text, uint64_t text_bytes) {
  void* const file = OpenSharedLibrary(kFile, folders, text, text_bytes);
  if (file == nullptr) return nullptr;
  auto* const nccl = new Nccl;
  if (FindAll(FunctionFinder(file, text, text_bytes), *nccl)) {
    if (nccl->get_version(&nccl->version) == ncclSuccess) return nccl;
    std::snprintf(text, text_bytes, "%s does not say its version", kFile);
  }
  delete nccl;
  CloseSharedLibrary(file);
  return nullptr;
}

int32_t Version(const void* nccl) { return static_cast<const Nccl*>(nccl)->version; }

const char* ErrorText(const void* nccl, Error error) {
  return static_cast<const Nccl*>(nccl)->error_string(static_cast<ncclResult_t>(error));
}

Error MakeWord(const void* nccl, void* word) {
  return Code(static_cast<const Nccl*>(nccl)->make_id(static_cast<ncclUniqueId*>(word)));
}

Error JoinOthers(const void* nccl, const void* word, int32_t members, int32_t rank,
                 void** communicator) {
  auto* const made = new Communicator{.nccl = static_cast<const Nccl*>(nccl)};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const Error error = Code(made->nccl->init(
      &made->comm, members, *static_cast<const ncclUniqueId*>(word), rank, &config));
  if (made->comm == nullptr) {
    delete made;
    return error;
  }
  *communicator = made;
  return error;
}

Error State(void* communicator) {
  const auto& at = *static_cast<const Communicator*>(communicator);
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = at.nccl->async_error(at.comm, &state);
  return Code(asked == ncclSuccess ? state : asked);
}

void End(void* communicator) {
  auto* const at = static_cast<Communicator*>(communicator);
  at->nccl->abort(at->comm);
  delete at;
}

// Of what is reduced: plans give it no other types (compiler/physical/assign_streams.cc).
ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    default:
      return ncclNumTypes;  // which NCCL refuses
  }
}

// By PeerReduceLaunch's numbers.
ncclRedOp_t OpOf(int32_t reduction) {
  return reduction == 0 ? ncclSum : reduction == 1 ? ncclMax : ncclMin;
}

// A member's part, as NCCL's calls want it. What only moves is so many bytes, whatever its type.
class Part {
 public:
  Part(const Communicator& at, const NcclCall& call, cudaStream_t stream)
      : nccl_(*at.nccl), comm_(at.comm), call_(call), stream_(stream) {}

  ncclResult_t Queue() const {
    switch (call_.kind) {
      case CollectiveKind::kAllReduce:
        return nccl_.all_reduce(call_.input, call_.output, Count(0), TypeOf(call_.dtype),
                                OpOf(call_.reduction), comm_, stream_);
      case CollectiveKind::kReduceScatter:
        return AreAlike()
                   ? nccl_.reduce_scatter(call_.input, call_.output, Count(0), TypeOf(call_.dtype),
                                          OpOf(call_.reduction), comm_, stream_)
                   : InGroup(&Part::ReduceBlocks);
      case CollectiveKind::kAllGather:
        return AreAlike() ? nccl_.all_gather(call_.input, call_.output, Bytes(call_.counts, 0),
                                             ncclInt8, comm_, stream_)
                          : InGroup(&Part::SpreadBlocks);
      case CollectiveKind::kAllToAll:
        return InGroup(&Part::Exchange);
      case CollectiveKind::kBroadcast:
        return nccl_.broadcast(call_.input, call_.output, Bytes(call_.counts, 0), ncclInt8,
                               call_.root, comm_, stream_);
    }
    return ncclInvalidArgument;
  }

 private:
  size_t Count(int member) const { return static_cast<size_t>(call_.counts[member]); }
  size_t Bytes(const int64_t* counts, int member) const {
    return static_cast<size_t>(counts[member] * call_.element_bytes);
  }
  bool AreAlike() const {
    for (int r = 1; r < call_.members; ++r) {
      if (call_.counts[r] != call_.counts[0]) return false;
    }
    return true;
  }

  ncclResult_t InGroup(ncclResult_t (Part::*queue)() const) const {
    ncclResult_t result = nccl_.group_start();
    if (result != ncclSuccess) return result;
    result = (this->*queue)();
    const ncclResult_t ended = nccl_.group_end();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
  }

  ncclResult_t ReduceBlocks() const {
    const char* block = static_cast<const char*>(call_.input);
    for (int r = 0; r < call_.members; block += Bytes(call_.counts, r), ++r) {
      if (call_.counts[r] == 0) continue;
      const ncclResult_t result = nccl_.reduce(block, call_.output, Count(r), TypeOf(call_.dtype),
                                               OpOf(call_.reduction), r, comm_, stream_);
      if (result != ncclSuccess && result != ncclInProgress) return result;
    }
    return ncclSuccess;
  }

  ncclResult_t SpreadBlocks() const {
    char* block = static_cast<char*>(call_.output);
    for (int r = 0; r < call_.members; block += Bytes(call_.counts, r), ++r) {
      if (call_.counts[r] == 0) continue;
      const ncclResult_t result =
          nccl_.broadcast(call_.input, block, Bytes(call_.counts, r), ncclInt8, r, comm_, stream_);
      if (result != ncclSuccess && result != ncclInProgress) return result;
    }
    return ncclSuccess;
  }

  ncclResult_t Exchange() const {
    const char* from = static_cast<const char*>(call_.input);
    char* to = static_cast<char*>(call_.output);
    for (int r = 0; r < call_.members; ++r) {
      const size_t sent = Bytes(call_.counts, r), received = Bytes(call_.receives, r);
      ncclResult_t result = ncclSuccess;
      if (sent > 0) result = nccl_.send(from, sent, ncclInt8, r, comm_, stream_);
      if (received > 0 && (result == ncclSuccess || result == ncclInProgress)) {
        result = nccl_.receive(to, received, ncclInt8, r, comm_, stream_);
      }
      if (result != ncclSuccess && result != ncclInProgress) return result;
      from += sent;
      to += received;
    }
    return ncclSuccess;
  }

  const Nccl& nccl_;
  const ncclComm_t comm_;
  const NcclCall& call_;
  const cudaStream_t stream_;
};

Error Collect(void* communicator, const NcclCall& call, void* stream) {
  const auto& at = *static_cast<const Communicator*>(communicator);
  return Code(Part(at, call, static_cast<cudaStream_t>(stream)).Queue());
}

}  // namespace

NcclTable MakeNcclTable() {
  return {.open = Open,
          .version = Version,
          .error_text = ErrorText,
          .make_word = MakeWord,
          .join = JoinOthers,
          .state = State,
          .collect = Collect,
          .end = End};
}

}  // namespace braid::cuda
