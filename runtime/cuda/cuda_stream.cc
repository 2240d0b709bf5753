#include "runtime/cuda/cuda_stream.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/module.h"

namespace braid::cuda {
namespace {

// The box as a walk, element by element.
absl::StatusOr<Walk> WalkOfRuns(const BoxRuns& runs) {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides(2);  // to, from
  for (const BoxRuns::Axis& axis : runs.axes) {
    sizes.push_back(axis.size);
    strides[0].push_back(axis.to);
    strides[1].push_back(axis.from);
  }
  sizes.push_back(runs.run);
  strides[0].push_back(1);
  strides[1].push_back(1);
  return WalkOf(sizes, strides);
}

// The same box of a source that has nothing but the runs, one after another.
BoxRuns DenseFrom(BoxRuns runs) {
  for (size_t i = 0; i < runs.from.size(); ++i) runs.from[i] = static_cast<int64_t>(i) * runs.run;
  int64_t stride = runs.run;
  for (size_t i = runs.axes.size(); i > 0; --i) {
    runs.axes[i - 1].from = stride;
    stride *= runs.axes[i - 1].size;
  }
  return runs;
}

}  // namespace

int32_t CombineNumber(Sbp::Kind kind) {
  CHECK(kind == Sbp::Kind::kPartialSum || kind == Sbp::Kind::kPartialMax ||
        kind == Sbp::Kind::kPartialMin);
  return kind == Sbp::Kind::kPartialSum ? 0 : (kind == Sbp::Kind::kPartialMax ? 1 : 2);
}

CudaStream::CudaStream(CudaDevice* device, const Queue& common, bool captures)
    : device_(*device), queue_(common), mark_(device->module(), device->card()) {
  Check(device_.module().make_stream(device_.card(), &stream_));
  queue_.stream = stream_;
  Check(device_.module().make_stream(device_.card(), &notices_));
  if (captures) Check(device_.module().make_stream(device_.card(), &capturing_));
}

CudaStream::~CudaStream() {
  for (void* stream : {stream_, notices_, capturing_}) {
    if (stream != nullptr) device_.module().destroy_stream(device_.card(), stream);
  }
}

void CudaStream::Check(Error error) {
  if (error != kDone) device_.Fail(Failed(error));
}

void CudaStream::CheckQueued(Error error) {
  if (queue_.stream == stream_) return Check(error);
  if (captured_ == kDone) captured_ = error;
}

absl::Status CudaStream::Failed(Error error) {
  WorkRange work;
  {
    MutexLock lock(notice_mutex_);
    work = since_notice_;
  }
  return device_.Failure(error, work);
}

const Queue& CudaStream::queue() {
  CheckQueued(device_.module().use_card(device_.card()));
  return queue_;
}

void CudaStream::SetName(const WorkName* name) {
  queue_.work = name;
  MutexLock lock(notice_mutex_);
  if (since_notice_.first == nullptr) since_notice_.first = name;
  since_notice_.last = name;
}

// CUDA copies from and to one block of pinned memory at a time.
void CudaStream::Copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t part =
        std::min({bytes, device_.PinnedTogether(to), device_.PinnedTogether(from)});
    CheckQueued(device_.module().copy(device_.card(), to, from, part, queue_.stream));
    to += part;
    from += part;
    bytes -= part;
  }
}

void CudaStream::Clear(std::byte* to, uint64_t bytes) {
  CheckQueued(device_.module().clear(device_.card(), to, bytes, queue_.stream));
}

void CudaStream::CopyBox(const BoxRuns& runs, size_t element_size, const std::byte* from,
                         std::byte* to) {
  if (runs.from.empty()) return;
  if (const CudaDevice* other = device_.UnseenOwner(from)) {
    for (size_t i = 0; i < runs.from.size(); ++i) {
      CopyFrom(*other, to + runs.to[i] * element_size, from + runs.from[i] * element_size,
               runs.run * element_size);
    }
    return;
  }
  if (runs.from.size() == 1) {
    return Copy(to + runs.to[0] * element_size, from + runs.from[0] * element_size,
                runs.run * element_size);
  }
  const absl::StatusOr<Walk> walk = WalkOfRuns(runs);
  if (!walk.ok()) return device_.Fail(walk.status());
  CheckQueued(device_.module().kernels.box.copy(
      queue(), {.walk = *walk,
                .element_bytes = static_cast<int64_t>(element_size),
                .from = from + runs.from[0] * element_size,
                .to = to + runs.to[0] * element_size}));
}

void CudaStream::CombineBox(const BoxRuns& runs, DType dtype, Sbp::Kind kind, const std::byte* from,
                            std::byte* to) {
  if (runs.from.empty()) return;
  const size_t bytes = SizeOf(dtype);
  if (const CudaDevice* other = device_.UnseenOwner(from)) {
    const std::byte* const landed = Land(*other, runs, bytes, from);
    if (landed == nullptr) return;
    return CombineBox(DenseFrom(runs), dtype, kind, landed, to);
  }
  const absl::StatusOr<Walk> walk = WalkOfRuns(runs);
  if (!walk.ok()) return device_.Fail(walk.status());
  CheckQueued(device_.module().kernels.box.combine(queue(), {.walk = *walk,
                                                             .dtype = dtype,
                                                             .kind = CombineNumber(kind),
                                                             .from = from + runs.from[0] * bytes,
                                                             .to = to + runs.to[0] * bytes}));
}

const std::byte* CudaStream::Land(const CudaDevice& other, const BoxRuns& runs, size_t element_size,
                                  const std::byte* from) {
  const uint64_t run = runs.run * element_size, bytes = run * runs.from.size();
  if (landings_.empty() || landings_.back().size() < bytes) {
    absl::StatusOr<Memory> memory = device_.Allocate(MemoryKind::kOwn, bytes);
    if (!memory.ok()) {
      device_.Fail(memory.status());
      return nullptr;
    }
    landings_.push_back(*std::move(memory));
  }
  std::byte* const to = landings_.back().data();
  for (size_t i = 0; i < runs.from.size(); ++i) {
    CopyFrom(other, to + i * run, from + runs.from[i] * element_size, run);
  }
  return to;
}

void CudaStream::CopyFrom(const CudaDevice& other, std::byte* to, const std::byte* from,
                          uint64_t bytes) {
  if (other.card() == device_.card()) return Copy(to, from, bytes);
  CheckQueued(
      device_.module().copy_across(device_.card(), to, other.card(), from, bytes, queue_.stream));
}

void CudaStream::Reduce(const PeerReduceLaunch& launch) {
  CheckQueued(device_.module().kernels.peers.reduce(queue(), launch));
}

void CudaStream::Record(StreamEvent& event) {
  auto& mark = static_cast<CudaEvent&>(event);
  if (mark.event_ == nullptr) Check(device_.module().make_event(mark.card_, &mark.event_));
  Check(device_.module().record(device_.card(), mark.event_, stream_));
}

void CudaStream::Wait(const StreamEvent& event) {
  const auto& mark = static_cast<const CudaEvent&>(event);
  if (mark.event_ == nullptr) return;
  Check(device_.module().wait(device_.card(), stream_, mark.event_));
}

namespace {

class CudaGraph final : public CapturedWork {
 public:
  CudaGraph(const ModuleTable& module, int card, void* graph)
      : module_(module), card_(card), graph_(graph) {}
  ~CudaGraph() override { module_.destroy_graph(card_, graph_); }

  void* graph() const { return graph_; }

 private:
  const ModuleTable& module_;
  const int card_;
  void* const graph_;
};

}  // namespace

bool CudaStream::BeginCapture() {
  captured_ = device_.module().begin_capture(device_.card(), capturing_);
  if (captured_ != kDone) {
    WarnOfCapture();
    return false;
  }
  queue_.stream = capturing_;
  return true;
}

std::unique_ptr<CapturedWork> CudaStream::EndCapture() {
  queue_.stream = stream_;
  void* graph = nullptr;
  const Error error = device_.module().end_capture(device_.card(), capturing_, &graph);
  if (captured_ == kDone) captured_ = error;
  auto work = graph == nullptr
                  ? nullptr
                  : std::make_unique<CudaGraph>(device_.module(), device_.card(), graph);
  if (captured_ == kDone) return work;
  WarnOfCapture();
  return nullptr;
}

void CudaStream::WarnOfCapture() const {
  LOG_FIRST_N(WARNING, 1) << "kernels are launched one by one where CUDA cannot capture them ("
                          << ErrorWords(device_.module(), captured_)
                          << "); --cuda_graphs=false does it everywhere";
}

void CudaStream::Launch(const CapturedWork& work) {
  Check(device_.module().launch_graph(device_.card(), static_cast<const CudaGraph&>(work).graph(),
                                      stream_));
}

void CudaStream::SetStep(int64_t step) {
  if (queue_.step == nullptr || step_ == step) return;
  step_ = step;
  CheckQueued(
      device_.module().kernels.rearrange.fill(queue(), {.to = queue_.step,
                                                        .element_bytes = sizeof(int64_t),
                                                        .elements = 1,
                                                        .bits = static_cast<uint64_t>(step)}));
}

void CudaStream::Notify(Notice notice) {
  MutexLock lock(notice_mutex_);
  DueNotice* const due =
      device_.Expect(std::move(notice), std::exchange(since_notice_, WorkRange()));
  Record(mark_);
  Check(device_.module().wait(device_.card(), notices_, mark_.event_));
  Check(device_.module().call_host(device_.card(), notices_, &CudaDevice::OnReached, due));
}

Error CudaStream::state() const { return device_.module().stream_state(device_.card(), stream_); }

}  // namespace braid::cuda
