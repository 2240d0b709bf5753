#include "runtime/checkpoint_saver.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace braid {

void CheckpointSaver::Finish(std::shared_ptr<CheckpointPart> part) {
  MutexLock lock(mutex_);
  if (reactor_ == nullptr) {
    reactor_ = options_.environment->StartReactor(absl::StrFormat("saver %d", options_.node));
  }
  reactor_->Post([this, part = std::move(part)] {
    const absl::Status status = part->Finish();
    options_.control->Post(
        [this, save = part->save(), status] { options_.on_saved(save, status); });
  });
}

}  // namespace braid
