// How the values of several ranks become one: by an operation of Braid's, or by a function of the
// program's own.
//
//   struct Range { float least, most; };
//   const auto hull = dist::Reduction::By<Range>("hull", [](const Range& a, const Range& b) {
//     return Range{std::min(a.least, b.least), std::max(a.most, b.most)};
//   });
//   std::vector<Range> ranges = ...;
//   BRAID_RETURN_IF_ERROR(world->AllReduce(ranges, hull));
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/group/element_type.h"

namespace braid::dist {

// A value; copies share the function.
class Reduction {
 public:
  Reduction(ReduceOp op) : op_(op) {}  // NOLINT(google-explicit-constructor)

  // `function(a, b)` makes one element of two, which are of any trivially copyable type of up to
  // 256 KiB. It must be associative and commutative, and give the same on every rank: in which
  // order the ranks' elements are put together depends on the call and on how many ranks there are,
  // not on the run, and all ranks get the same bits.
  //
  // `name` (not empty) tells the other ranks which function it is: another one is a mismatch, as of
  // other operations. The call that it is given to must be on elements of type T.
  //
  // The function runs on the thread that waits for a call of the world or on the world's own, for
  // one element after the other. All ranks wait for it, so it should not block, and calls of
  // process groups in it are errors. Its exception ends the world, on all ranks, with an error that
  // names the call and its line. It is kept until the call is done.
  template <typename T, std::copy_constructible F>
  requires std::is_trivially_copyable_v<T> && std::is_copy_assignable_v<T> &&
      std::is_invocable_r_v<T, const F&, const T&, const T&>
  static Reduction By(std::string name, F function) {
    static_assert(alignof(T) <= kMostAlignment, "what other ranks sent is not aligned like this");
    Reduction reduction(ReduceOp::kSum);
    reduction.function_ = std::make_shared<const ReduceFunction>(
        ReduceFunction{.name = std::move(name),
                       .type = ElementTypeOf<T>(),
                       .element_size = sizeof(T),
                       .combine = [function = std::move(function)](void* dst, const void* a,
                                                                   const void* b, int64_t n) {
                         auto* const out = static_cast<T*>(dst);
                         const auto* const left = static_cast<const T*>(a);
                         const auto* const right = static_cast<const T*>(b);
                         for (int64_t i = 0; i < n; ++i) out[i] = function(left[i], right[i]);
                       }});
    return reduction;
  }

  ReduceOp op() const { return op_; }
  // Null: the reduction is `op()`.
  const std::shared_ptr<const ReduceFunction>& function() const { return function_; }

 private:
  static constexpr size_t kMostAlignment = 64;  // of bytes, where elements arrive

  ReduceOp op_;
  std::shared_ptr<const ReduceFunction> function_;
};

}  // namespace braid::dist
