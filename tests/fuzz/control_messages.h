// Inputs that are a byte and then a list of pieces, each a serialised ControlMessage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "runtime/control.pb.h"
#include "tests/fuzz/message_mutator.h"

namespace braid::fuzz {

struct MutableInput {
  uint8_t* data = nullptr;
  size_t size = 0;
  size_t max_size = 0;
};
// As Target::mutate: one message doubled, moved or left out, or changed by `change`.
size_t MutateControlMessages(const MutableInput& input, unsigned seed,
                             absl::FunctionRef<void(control::ControlMessage&, Random&)> change);

}  // namespace braid::fuzz
