// What the module of CUDA kernels gives: a function for each launch, by family.
#pragma once

#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/box.h"
#include "runtime/kernels/cuda/convolution.h"
#include "runtime/kernels/cuda/gather.h"
#include "runtime/kernels/cuda/integers.h"
#include "runtime/kernels/cuda/matmul.h"
#include "runtime/kernels/cuda/normalization.h"
#include "runtime/kernels/cuda/peer_reduce.h"
#include "runtime/kernels/cuda/pointwise.h"
#include "runtime/kernels/cuda/pooling.h"
#include "runtime/kernels/cuda/random.h"
#include "runtime/kernels/cuda/rearrange.h"
#include "runtime/kernels/cuda/recurrent.h"
#include "runtime/kernels/cuda/reduce.h"
#include "runtime/kernels/cuda/resize.h"
#include "runtime/kernels/cuda/scatter.h"
#include "runtime/kernels/cuda/softmax.h"
#include "runtime/kernels/cuda/sort.h"
#include "runtime/kernels/cuda/update.h"

namespace braid::cuda {

struct KernelTable {
  AttentionTable attention;
  BoxTable box;
  ConvolutionTable convolution;
  GatherTable gather;
  IntegerTable integers;
  MatmulTable matmul;
  NormalizationTable normalization;
  PeerReduceTable peers;
  PointwiseTable pointwise;
  PoolingTable pooling;
  RandomTable random;
  RearrangeTable rearrange;
  RecurrentTable recurrent;
  ReduceTable reduce;
  ResizeTable resize;
  ScatterTable scatter;
  SoftmaxTable softmax;
  SortTable sort;
  UpdateTable update;
};

// Of the module, or of whatever else the sources *.cu were compiled into.
KernelTable MakeKernelTable();

}  // namespace braid::cuda
