// The owner of variables does no work of its own: its actor only counts.
#include <memory>

#include "runtime/actions/make_action.h"

namespace braid {
namespace {

class VariableAction final : public Action {
 public:
  void Start(const Act& /*act*/, ActDone done) override { done(absl::OkStatus()); }
};

}  // namespace

absl::StatusOr<MadeAction> MakeAction(const plan::VariableOwner& /*owner*/,
                                      ActionContext& /*context*/) {
  MadeAction made;
  made.action = std::make_unique<VariableAction>();
  return made;
}

}  // namespace braid
