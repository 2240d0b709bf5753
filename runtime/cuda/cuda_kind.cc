#include "runtime/cuda/cuda_kind.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_group.h"
#include "runtime/kernels/cuda/families.h"

namespace braid::cuda {
namespace {

// What all devices of a process share: the module, and the kernels that it has.
class Cards {
 public:
  explicit Cards(std::shared_ptr<const CudaOptions> options) : options_(std::move(options)) {}

  absl::Status Open(int devices) { return CardsOf(devices).status(); }

  // Devices of one card have equal parts of it.
  uint64_t MemoryOf(int device, int devices) {
    const absl::StatusOr<std::vector<int>> cards = CardsOf(devices);
    CardInfo info = {};
    if (!cards.ok() || table().describe((*cards)[device], &info) != kDone) return 0;
    return info.bytes / static_cast<uint64_t>(std::ranges::count(*cards, (*cards)[device]));
  }

  std::unique_ptr<Device> Make(const DeviceRequest& request) {
    // Something may have changed since it was open: the device says so when it is first used.
    const absl::StatusOr<std::vector<int>> cards = CardsOf(request.devices);
    MutexLock lock(mutex_);
    CHECK(module_ != nullptr) << "devices were made without DeviceKinds::Kind::open";
    return std::make_unique<CudaDevice>(
        request, CudaDevice::Options{.module = module_,
                                     .card = cards.ok() ? (*cards)[request.index] : 0,
                                     .status = cards.status(),
                                     .kernels = kernels_,
                                     .libraries = options_->libraries,
                                     .rounds_to_tf32 = options_->rounds_to_tf32,
                                     .sums_by_winograd = options_->sums_by_winograd,
                                     .uses_graphs = options_->uses_graphs,
                                     .compiler = CompilerLocked(request)});
  }

  ReachBetweenNodes BetweenNodes(int devices) {
    const absl::StatusOr<std::vector<int>> cards = CardsOf(devices);
    if (!options_->uses_nccl || !cards.ok()) return {};
    const ModuleTable& module = table();
    ReachBetweenNodes reach;
    for (const int card : *cards) {
      CardInfo info = {};
      if (module.describe(card, &info) != kDone) return {};
      reach.cards.emplace_back(std::begin(info.id), std::end(info.id));
    }
    char why[1024] = {};
    MutexLock lock(mutex_);
    if (nccl_ == nullptr) nccl_ = module.nccl.open(options_->libraries.c_str(), why, sizeof why);
    if (nccl_ == nullptr) {
      LOG_FIRST_N(WARNING, 1) << why
                              << "; what cards do with those of other nodes goes through the host";
      return {};
    }
    const int version = module.nccl.version(nccl_);
    reach.library =
        absl::StrFormat("NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return reach;
  }

  std::unique_ptr<DeviceGroup> MakeGroup(const Devices& devices) {
    MutexLock lock(mutex_);
    return MakeCudaGroup(devices, nccl_);
  }

 private:
  std::shared_ptr<ProgramCompiler> CompilerLocked(const DeviceRequest& request)
      BRAID_REQUIRES(mutex_) {
    if (!options_->fuses_kernels || compiler_ != nullptr) return compiler_;
    char why[1024] = {};
    const void* const opened = module_->compiler.open(options_->libraries.c_str(), why, sizeof why);
    if (opened != nullptr) {
      compiler_ = std::make_shared<ProgramCompiler>(ProgramCompiler::Options{
          .table = module_->compiler, .compiler = opened, .cache = options_->cache});
    } else if (request.index == 0) {
      LOG(WARNING) << "node " << request.node << ": " << why
                   << "; kernels that could be one run one by one";
    }
    return compiler_;
  }

  const ModuleTable& table() {
    MutexLock lock(mutex_);
    return *module_;
  }

  // Of a node with so many devices: nodes of one process may have different numbers of them.
  absl::StatusOr<std::vector<int>> CardsOf(int devices) {
    MutexLock lock(mutex_);
    if (module_ == nullptr) {
      BRAID_ASSIGN_OR_RETURN(module_, OpenModule(options_->module));
      kernels_ = std::make_shared<const KernelRegistry>(CudaKernels(module_->kernels));
    }
    return ChooseCards(*module_, devices, options_->card);
  }

  const std::shared_ptr<const CudaOptions> options_;
  Mutex mutex_;
  const ModuleTable* module_ BRAID_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<const KernelRegistry> kernels_ BRAID_GUARDED_BY(mutex_);
  void* nccl_ BRAID_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<ProgramCompiler> compiler_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace

DeviceKinds::Kind CudaKind(std::shared_ptr<const CudaOptions> options) {
  const auto cards = std::make_shared<Cards>(std::move(options));
  return {.is_host = false,
          .is_hardware = true,
          .keeps_narrow = true,
          .adds_to_products = true,
          .make = [cards](const DeviceRequest& request) { return cards->Make(request); },
          .open = [cards](int devices) { return cards->Open(devices); },
          .memory = [cards](int device, int devices) { return cards->MemoryOf(device, devices); },
          .make_group = [cards](const Devices& devices) { return cards->MakeGroup(devices); },
          .collects_in_any_order = true,
          .between_nodes = [cards](int devices) { return cards->BetweenNodes(devices); }};
}

}  // namespace braid::cuda
