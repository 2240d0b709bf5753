#include "compiler/logical/cast_copies.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"

namespace braid::compiler {

TensorId CastCopies::Of(TensorId tensor, DType dtype, OpId reader) {
  const Op& consumer = graph_.op(reader);  // until the graph gets another op
  const auto [found, is_new] = copies_.try_emplace(
      {tensor, dtype, consumer.placement.has_value() ? consumer.placement->ToString() : ""}, kNone);
  if (is_new) {
    const Tensor source(&graph_, tensor);
    const Tensor copy = graph_.Append1(
        "cast", {&source, 1},
        {.name = absl::StrCat(graph_.producer(tensor).name, ".", std::string(ToString(dtype))),
         .attrs = {{"dtype", dtype}},
         .location = consumer.location,
         .placement = consumer.placement});
    CHECK(copy.valid()) << graph_.status();
    found->second = copy.id();
    first_readers_.emplace_back(graph_.producer(copy.id()).id, reader);
  }
  return found->second;
}

}  // namespace braid::compiler
