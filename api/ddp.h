// How gradients of mirrored values come together, where a job says more than that their sum is
// taken (MinimizeOptions::ddp): what DistributedDataParallel of PyTorch calls communication hooks,
// and no_sync.
//
//   Tensor loss = job.Mirrored([&] { ... return MeanMirrored(own_loss); });
//   job.Minimize(loss, braid::Adam{}, {.ddp = braid::Ddp{.hook = braid::Bf16Gradients()}});
//
// Without it gradients are summed in buckets by the compiler while the backward pass goes on, which
// is faster than a hook that only sums.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "graph/logical_graph.h"
#include "graph/source_location.h"

namespace braid {

// From a bucket to what it comes to, recorded like any function of tensors. `bucket` is [n] and
// mirrored: on each device the gradients of its own part of the loss, one variable's after the
// other's; the result is [n] of the same type, and not mirrored. SumMirrored(bucket) is what
// Minimize takes without a hook. `name` is that of the bucket's first variable: variables that the
// hook makes are called NAME.something, and are no weights then, but states of the optimizer.
using GradientHook = std::function<Tensor(Tensor bucket, const std::string& name)>;

// Sums in f16 or bf16: half the bytes of f32. What is too large for f16 becomes an infinity.
GradientHook Fp16Gradients();
GradientHook Bf16Gradients();

// Vogels et al., "PowerSGD: practical low-rank gradient compression for distributed optimization",
// 2019, with error feedback and a warm start; a bucket of n numbers is a square matrix, of which
// 2 rank sqrt(n) numbers go over the wire, as in PyTorch's batched_powerSGD_hook. Each device keeps
// what was left out in the variable NAME.error, f32 [devices n].
struct PowerSgd {
  int64_t rank = 1;  // at least 1
  GradientHook hook() const;
  operator GradientHook() const { return hook(); }  // NOLINT: PowerSgd{.rank = 2} is a hook
};

struct Ddp {
  GradientHook hook = {};  // none: their sum
  // Of buckets, at least 1. They are of one type and filled in the order in which gradients become
  // final; a variable is not divided. A bucket that a hook gets has no more bytes, unless it is of
  // one variable. Without a hook the compiler's buckets end with the variable that brings them to
  // so many bytes, or where other communication starts; of several Minimize of a job that say sizes
  // the smallest count. The first bucket is smaller, so that it is sent earlier: none is 1 MiB, or
  // .bucket_bytes if that is less. Of the others none is 25 MiB with a hook and 4 MiB without.
  std::optional<int64_t> first_bucket_bytes = std::nullopt;
  std::optional<int64_t> bucket_bytes = std::nullopt;
  // Run({.no_sync = true}) may be called: its steps add each device's gradients to those of
  // earlier ones, in the variables NAME.unsynced, [devices n] of NAME's type, and update nothing;
  // the next step without it reduces the sum. Takes the memory of one more gradient, and of a
  // second job, for which the function that records the first is called once more.
  bool no_sync = false;
};

// What DistributedDataParallel's join divides by.
enum class JoinDivisor : uint8_t {
  kLive,  // by the number of devices that still have data
  kAll,   // by the number of all
};

// The mean of x, floating, over those devices that have data: `live` is [], 1 there and 0 on the
// others, whose x counts as 0, and through which no gradient goes. At least one is live.
Tensor MeanOfLive(Tensor x, Tensor live, JoinDivisor by = JoinDivisor::kLive,
                  SourceLocation where = Here());

}  // namespace braid
