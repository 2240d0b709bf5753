#include "compiler/logical/fusion_patterns.h"

namespace braid::compiler {

namespace {

// Inputs of batch_norm: x, its two statistics, gamma, beta.
constexpr int kNormInputs = 5, kMean = 1, kVariance = 2, kStatistics = 3, kGamma = 3, kBeta = 4;

}  // namespace

std::vector<FoldedNorm> FoldedNorms() {
  return {{.norm = "batch_norm",
           .norm_inputs = kNormInputs,
           .mean = kMean,
           .variance = kVariance,
           .gamma = kGamma,
           .beta = kBeta,
           .product = "conv",
           .weights = 1,
           .addend = 2}};
}

std::vector<FusionPattern> FusionPatterns() {
  return {
      // Its gradients find from x where the rectifier let through.
      {.root = "batch_norm",
       .inputs = kNormInputs,
       .flag = "relu",
       .steps = {{.op = "relu"}},
       .gradient = {.op = "relu_grad",
                    .shared = kStatistics,
                    .takers = {{.op = "batch_norm_sums", .flow = 3, .more_inputs = {kGamma, kBeta}},
                               {.op = "batch_norm_dx", .flow = 4, .more_inputs = {kBeta}}}}},
      // What passes the rectifier goes to the other addend, too, so it is made.
      {.root = "batch_norm",
       .inputs = kNormInputs,
       .flag = "relu",
       .steps = {{.op = "add", .takes_other = true}, {.op = "relu"}}},
  };
}

}  // namespace braid::compiler
