#include "runtime/checkpoint_saver.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace braid {

void CheckpointSaver::Finish(std::shared_ptr<CheckpointPart> part) {
  MutexLock lock(mutex_);
  if (reactor_ == nullptr) {
    reactor_ = options_.environment->StartReactor(absl::StrFormat("saver %d", options_.node));
  }
  // Whoever is told may be told when this saver is gone.
  reactor_->Post(
      [control = options_.control, on_saved = options_.on_saved, part = std::move(part)] {
        const absl::Status status = part->Finish();
        control->Post([on_saved, save = part->save(), status] { on_saved(save, status); });
      });
}

}  // namespace braid
