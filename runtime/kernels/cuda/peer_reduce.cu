// Reductions over the memory of several devices. Each element is read once from each of them and
// written once to each output, 16 bytes at a time where all are aligned.
#include "runtime/kernels/cuda/element_groups.h"
#include "runtime/kernels/cuda/peer_reduce.h"

namespace braid::cuda {
namespace {

template <class T, int n, class Join>
__global__ void __launch_bounds__(kThreads) PeerReduceKernel(PeerReduceLaunch l, Join join) {
  using C = Compute<T>;
  const int64_t groups = (l.elements + n - 1) / n;
  for (int64_t group = FirstIndex(); group < groups; group += IndexStep()) {
    const int64_t at = group * n;
    const int count = static_cast<int>(l.elements - at < n ? l.elements - at : n);
    C all[n] = {};
    LoadStored<T>(l.inputs[0], at, count, all);
    BRAID_UNROLL_BY_4
    for (int k = 1; k < l.num_inputs; ++k) {
      C more[n] = {};
      LoadStored<T>(l.inputs[k], at, count, more);
      for (int j = 0; j < n; ++j) {
        if (j < count) all[j] = static_cast<C>(join(all[j], more[j]));
      }
    }
    for (int k = 0; k < l.num_outputs; ++k) StoreStored<T>(l.outputs[k], at, count, all);
  }
}

Error Reduce(const Queue& queue, const PeerReduceLaunch& launch) {
  if (launch.elements == 0) return kDone;
  bool is_aligned = true;
  for (int k = 0; k < launch.num_inputs; ++k) is_aligned &= IsAligned(launch.inputs[k]);
  for (int k = 0; k < launch.num_outputs; ++k) is_aligned &= IsAligned(launch.outputs[k]);
  return VisitStored(launch.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kPack = static_cast<int>(16 / sizeof(T));
    return VisitJoin(launch.kind, [&](auto join) {
      using Join = decltype(join);
      if (is_aligned) {
        const int64_t groups = (launch.elements + kPack - 1) / kPack;
        return Launch(queue, BlocksFor(queue, groups), kThreads, PeerReduceKernel<T, kPack, Join>,
                      launch, join);
      }
      return Launch(queue, BlocksFor(queue, launch.elements), kThreads,
                    PeerReduceKernel<T, 1, Join>, launch, join);
    });
  });
}

}  // namespace

PeerReduceTable MakePeerReduceTable() { return {.reduce = Reduce}; }

}  // namespace braid::cuda
