// The table of all launches.
#include "runtime/kernels/cuda/kernel_table.h"

namespace braid::cuda {

KernelTable MakeKernelTable() {
  return {.attention = MakeAttentionTable(),
          .box = MakeBoxTable(),
          .convolution = MakeConvolutionTable(),
          .gather = MakeGatherTable(),
          .integers = MakeIntegerTable(),
          .matmul = MakeMatmulTable(),
          .normalization = MakeNormalizationTable(),
          .peers = MakePeerReduceTable(),
          .pointwise = MakePointwiseTable(),
          .pooling = MakePoolingTable(),
          .random = MakeRandomTable(),
          .rearrange = MakeRearrangeTable(),
          .recurrent = MakeRecurrentTable(),
          .reduce = MakeReduceTable(),
          .resize = MakeResizeTable(),
          .scatter = MakeScatterTable(),
          .softmax = MakeSoftmaxTable(),
          .sort = MakeSortTable(),
          .update = MakeUpdateTable()};
}

}  // namespace braid::cuda
