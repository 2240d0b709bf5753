// Softmax, losses, layer norm, gather, random numbers and optimizers against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/philox.h"
#include "runtime/kernels/kernel.h"
#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;

// Rows of the last axis; row r of a matrix sees columns up to first + r if causal.
Values Softmax(const Values& x, int64_t n, double scale, int64_t matrix_rows, int64_t first,
               bool causal) {
  Values y(x.size(), 0.0);
  for (size_t row = 0; row * n < x.size(); ++row) {
    const int64_t seen =
        causal ? std::min<int64_t>(n, first + static_cast<int64_t>(row) % matrix_rows + 1) : n;
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < seen; ++j) max = std::max(max, scale * x[row * n + j]);
    for (int64_t j = 0; j < seen; ++j) sum += std::exp(scale * x[row * n + j] - max);
    for (int64_t j = 0; j < seen; ++j) {
      y[row * n + j] = std::exp(scale * x[row * n + j] - max) / sum;
    }
  }
  return y;
}

TEST(SoftmaxTest, ScaleAndCausalOnRegions) {
  for (DType dtype : kFloatTypes) {
    for (bool causal : {false, true}) {
      // Rows 4..8 of 11 in act 0, 5 rows further in act 1.
      OperandSpec operand = KernelCase::Operand(dtype, {3, 11, 40});
      operand.region.offset[1] = 1;
      operand.region.size[1] = 5;
      operand.micro_batch_axis = 1;
      operand.micro_batch_stride = 5;
      for (int64_t act : {0, 1}) {
        const Values x = RandomValues(operand.shape(), dtype, 1, -9, 9);
        const Attrs attrs = {{"causal", causal}, {"scale", 0.35}};
        KernelCase kernel("softmax", attrs);
        kernel.In(operand, x).Out(operand);
        kernel.run().micro_batch = act;
        ASSERT_TRUE(kernel.Run().ok());
        const Values expected = Softmax(x, 40, 0.35, 5, 1 + 5 * act, causal);
        ExpectNear(kernel.Output(), expected, 30 * Epsilon(dtype), 0.1);

        Values y;
        for (double v : expected) y.push_back(Rounded(dtype, v));
        const Values dy = RandomValues(operand.shape(), dtype, 2);
        Values dx(x.size());
        for (size_t row = 0; row < 15; ++row) {
          double dot = 0;
          for (size_t j = row * 40; j < row * 40 + 40; ++j) dot += y[j] * dy[j];
          for (size_t j = row * 40; j < row * 40 + 40; ++j) dx[j] = 0.35 * y[j] * (dy[j] - dot);
        }
        KernelCase gradient("softmax_grad", attrs);
        gradient.In(operand, y).In(operand, dy).Out(operand).Inplace(1);
        gradient.run().micro_batch = act;
        ASSERT_TRUE(gradient.Run().ok());
        ExpectNear(gradient.Output(), dx, 10 * Epsilon(dtype), 0.1);
      }
    }
  }
}

TEST(SoftmaxTest, LogSoftmaxAndSumExp) {
  const Shape shape = {4, 53};
  for (DType dtype : kFloatTypes) {
    const Values x = RandomValues(shape, dtype, 1, -9, 9), dy = RandomValues(shape, dtype, 2);
    const Values soft = Softmax(x, 53, 1, 1, 0, false);
    Values expected(x.size()), dx(x.size()), max(4), sums(4);
    for (size_t row = 0; row < 4; ++row) {
      double total = 0;
      for (size_t j = row * 53; j < row * 53 + 53; ++j) total += dy[j];
      for (size_t j = row * 53; j < row * 53 + 53; ++j) {
        expected[j] = Rounded(dtype, std::log(soft[j]));
        dx[j] = dy[j] - std::exp(expected[j]) * total;
      }
      max[row] = *std::max_element(&x[row * 53], &x[row * 53] + 53);
      for (size_t j = row * 53; j < row * 53 + 53; ++j) sums[row] += std::exp(x[j] - max[row]);
    }
    KernelCase forward("log_softmax");
    forward.In(dtype, shape, x).Out(dtype, shape);
    ASSERT_TRUE(forward.Run().ok());
    ExpectNear(forward.Output(), expected, 8 * Epsilon(dtype));
    KernelCase backward("log_softmax_grad");
    backward.In(dtype, shape, expected).In(dtype, shape, dy).Out(dtype, shape);
    ASSERT_TRUE(backward.Run().ok());
    ExpectNear(backward.Output(), dx, 8 * Epsilon(dtype), 8);
    KernelCase sum("sum_exp");
    sum.In(dtype, shape, x).In(dtype, {4}, max).Out(dtype, {4});
    ASSERT_TRUE(sum.Run().ok());
    ExpectNear(sum.Output(), sums, 8 * Epsilon(dtype));
  }
}

// The class axis in `parts`: addends of the losses add up, gradients are the shards'.
void CheckCrossEntropy(DType dtype, DType label_type, int64_t parts) {
  const Shape shape = {6, 23};
  const Values logits = RandomValues(shape, dtype, 1, -5, 5), dloss = RandomValues({6}, dtype, 2);
  Values probs = RandomValues(shape, dtype, 3, 0, 0.08);
  const Values labels = {0, 22, 7, 11, 12, 3};
  Values max(6), sum(6), sparse(6), dense(6), dsparse(logits.size()), ddense(logits.size());
  for (size_t row = 0; row < 6; ++row) {
    const double* x = &logits[row * 23];
    max[row] = *std::max_element(x, x + 23);
    for (int j = 0; j < 23; ++j) sum[row] += std::exp(x[j] - max[row]);
    sum[row] = Rounded(dtype, sum[row]);
    const double log_sum = std::log(sum[row]) + max[row];
    sparse[row] = log_sum - x[static_cast<int>(labels[row])];
    for (int j = 0; j < 23; ++j) {
      dense[row] += probs[row * 23 + j] * (log_sum - x[j]);
      const double soft = std::exp(x[j] - max[row]) / sum[row];
      dsparse[row * 23 + j] = (soft - (j == labels[row])) * dloss[row];
      ddense[row * 23 + j] = (soft - probs[row * 23 + j]) * dloss[row];
    }
  }
  Values sparse_sum(6), dense_sum(6);
  for (int64_t part = 0; part < parts; ++part) {
    OperandSpec operand = KernelCase::Operand(dtype, shape);
    const Interval interval = SplitEvenly(23, parts, part);
    operand.region.offset[1] = interval.offset;
    operand.region.size[1] = interval.size;
    const Values x = Cut(logits, shape, operand.region), p = Cut(probs, shape, operand.region);
    const auto run = [&](const std::string& op, bool is_sparse, bool is_gradient) {
      KernelCase kernel(op);
      kernel.In(operand, x);
      if (is_sparse) kernel.In(label_type, {6}, labels);
      if (!is_sparse) kernel.In(operand, p);
      kernel.In(dtype, {6}, max).In(dtype, {6}, sum);
      if (is_gradient) {
        kernel.In(dtype, {6}, dloss).Out(operand);
      } else {
        kernel.Out(dtype, {6});
      }
      EXPECT_TRUE(kernel.Run().ok());
      return kernel.Output();
    };
    const Values sparse_part = run("sparse_softmax_cross_entropy", true, false);
    const Values dense_part = run("softmax_cross_entropy", false, false);
    for (size_t i = 0; i < 6; ++i) sparse_sum[i] += sparse_part[i], dense_sum[i] += dense_part[i];
    ExpectNear(run("sparse_softmax_cross_entropy_grad", true, true),
               Cut(dsparse, shape, operand.region), 8 * Epsilon(dtype));
    ExpectNear(run("softmax_cross_entropy_grad", false, true), Cut(ddense, shape, operand.region),
               8 * Epsilon(dtype));
  }
  ExpectNear(sparse_sum, sparse, 4 * Epsilon(dtype), 8);
  ExpectNear(dense_sum, dense, 4 * Epsilon(dtype), 8);
}

TEST(CrossEntropyTest, WholeAndSplitClasses) {
  for (DType dtype : kFloatTypes) {
    for (int64_t parts : {1, 2, 3, 40}) {
      SCOPED_TRACE(std::string(ToString(dtype)) + " in " + std::to_string(parts));
      CheckCrossEntropy(dtype, DType::kI32, parts);
      CheckCrossEntropy(dtype, DType::kI64, parts);
    }
  }
}

// Losses far smaller than the logits keep their digits, in each half of the classes too.
TEST(CrossEntropyTest, LargeLogitsDoNotCancel) {
  const Values logits = {1000, 991, 990, 988}, dense_labels = {0.75, 0.25, 0, 0};
  Values sum = {0};
  for (double x : logits) sum[0] += std::exp(x - 1000);
  sum[0] = Rounded(DType::kF32, sum[0]);
  const Values labels[] = {{0}, dense_labels};
  const Values expected[] = {{std::log(sum[0])}, {std::log(sum[0]) + 0.25 * 9}};
  const std::string ops[] = {"sparse_softmax_cross_entropy", "softmax_cross_entropy"};
  for (int i = 0; i < 2; ++i) {
    for (int64_t parts : {1, 2}) {
      SCOPED_TRACE(ops[i] + " in " + std::to_string(parts));
      double loss = 0;
      for (int64_t part = 0; part < parts; ++part) {
        OperandSpec operand = KernelCase::Operand(DType::kF32, {1, 4});
        operand.region.size[1] = 4 / parts;
        operand.region.offset[1] = part * 4 / parts;
        KernelCase kernel(ops[i]);
        kernel.In(operand, Cut(logits, {1, 4}, operand.region));
        if (i == 0) kernel.In(DType::kI32, {1}, labels[i]);
        if (i == 1) kernel.In(operand, Cut(labels[i], {1, 4}, operand.region));
        kernel.In(DType::kF32, {1}, {1000}).In(DType::kF32, {1}, sum).Out(DType::kF32, {1});
        ASSERT_TRUE(kernel.Run().ok());
        EXPECT_GE(kernel.Output()[0], 0);
        loss += kernel.Output()[0];
      }
      EXPECT_NEAR(loss, expected[i][0], 2 * Epsilon(DType::kF32) * expected[i][0]);
    }
  }
}

TEST(CrossEntropyTest, SaysWhichLabelIsWrong) {
  KernelCase kernel("sparse_softmax_cross_entropy");
  kernel.In(DType::kF32, {2, 3}, Values(6, 0.0)).In(DType::kI32, {2}, {1, 3});
  kernel.In(DType::kF32, {2}, {0, 0}).In(DType::kF32, {2}, {3, 3}).Out(DType::kF32, {2});
  const absl::Status status = kernel.Run();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "sparse_softmax_cross_entropy 'test/sparse_softmax_cross_entropy': label 3 at "
            "position 1 is outside [0, 3)");
}

TEST(LayerNormTest, ForwardAndBackward) {
  for (DType dtype : kFloatTypes) {
    for (int64_t c : {1, 5, 32, 77}) {
      SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::to_string(c));
      const Shape shape = {2, 70, c}, rows = {2, 70};
      const Values x = RandomValues(shape, dtype, 1, -2, 3), gamma = RandomValues({c}, dtype, 2);
      const Values beta = RandomValues({c}, dtype, 3), dy = RandomValues(shape, dtype, 4);
      const double epsilon = 1e-2;
      Values y(x.size()), mean(140), rstd(140), dx(x.size()), dgamma(c), dbeta(c);
      for (int64_t row = 0; row < 140; ++row) {
        const double* xr = &x[row * c];
        double m = 0, variance = 0;
        for (int64_t j = 0; j < c; ++j) m += xr[j] / c;
        for (int64_t j = 0; j < c; ++j) variance += (xr[j] - m) * (xr[j] - m) / c;
        const double r = 1 / std::sqrt(variance + epsilon);
        for (int64_t j = 0; j < c; ++j) y[row * c + j] = (xr[j] - m) * r * gamma[j] + beta[j];
        mean[row] = Rounded(dtype, m);
        rstd[row] = Rounded(dtype, r);
        // The gradient sees the stored mean and rstd.
        double mean_g = 0, mean_gh = 0;
        for (int64_t j = 0; j < c; ++j) {
          const double g = dy[row * c + j] * gamma[j], h = (xr[j] - mean[row]) * rstd[row];
          mean_g += g / c;
          mean_gh += g * h / c;
          dgamma[j] += dy[row * c + j] * h;
          dbeta[j] += dy[row * c + j];
        }
        for (int64_t j = 0; j < c; ++j) {
          const double g = dy[row * c + j] * gamma[j], h = (xr[j] - mean[row]) * rstd[row];
          dx[row * c + j] = rstd[row] * (g - mean_g - h * mean_gh);
        }
      }
      KernelCase forward("layer_norm", {{"epsilon", epsilon}});
      forward.In(dtype, shape, x).In(dtype, {c}, gamma).In(dtype, {c}, beta);
      forward.Out(dtype, shape).Out(dtype, rows).Out(dtype, rows);
      ASSERT_TRUE(forward.Run().ok());
      ExpectNear(forward.Output(0), y, 20 * Epsilon(dtype));
      ExpectNear(forward.Output(1), mean, 4 * Epsilon(dtype));
      ExpectNear(forward.Output(2), rstd, 8 * Epsilon(dtype));
      KernelCase backward("layer_norm_grad");
      backward.In(dtype, shape, x).In(dtype, {c}, gamma).In(dtype, rows, mean);
      backward.In(dtype, rows, rstd).In(dtype, shape, dy);
      backward.Out(dtype, shape).Out(dtype, {c}).Out(dtype, {c});
      ASSERT_TRUE(backward.Run().ok());
      ExpectNear(backward.Output(0), dx, 20 * Epsilon(dtype), 4);
      ExpectNear(backward.Output(1), dgamma, 8 * Epsilon(dtype), 12);
      ExpectNear(backward.Output(2), dbeta, 8 * Epsilon(dtype), 12);
    }
  }
}

TEST(GatherTest, SplitTablesAddUp) {
  const Shape table_shape = {3, 7, 2}, indices_shape = {2, 5}, out_shape = {3, 2, 5, 2};
  const Values indices = {0, 6, 3, 3, 2, 1, 6, 6, 0, 5};
  const Attrs attrs = {{"axis", int64_t{1}}, {"size", int64_t{7}}};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64}) {
    const Values table = RandomValues(table_shape, dtype, 1, -50, 50);
    const Values dy = RandomValues(out_shape, dtype, 2);
    Values expected(60), gradient(42);
    for (int64_t i = 0; i < 60; ++i) {
      const Ints at = IndexOf(out_shape, i);
      const auto row = static_cast<int64_t>(indices[at[1] * 5 + at[2]]);
      expected[i] = table[FlatOf(table_shape, {at[0], row, at[3]})];
      gradient[FlatOf(table_shape, {at[0], row, at[3]})] += dy[i];
    }
    for (int64_t parts : {1, 3}) {
      Values sum(60);
      for (int64_t part = 0; part < parts; ++part) {
        OperandSpec operand = KernelCase::Operand(dtype, table_shape);
        const Interval interval = SplitEvenly(7, parts, part);
        operand.region.offset[1] = interval.offset;
        operand.region.size[1] = interval.size;
        const DType index_type = part == 0 ? DType::kI32 : DType::kI64;
        KernelCase kernel("gather", attrs);
        kernel.In(operand, Cut(table, table_shape, operand.region));
        kernel.In(index_type, indices_shape, indices).Out(dtype, out_shape);
        ASSERT_TRUE(kernel.Run().ok());
        for (size_t i = 0; i < 60; ++i) sum[i] += kernel.Output()[i];
        if (!IsFloating(dtype)) continue;
        KernelCase backward("gather_grad", attrs);
        backward.In(index_type, indices_shape, indices).In(dtype, out_shape, dy).Out(operand);
        ASSERT_TRUE(backward.Run().ok());
        ExpectNear(backward.Output(), Cut(gradient, table_shape, operand.region),
                   4 * Epsilon(dtype));
      }
      EXPECT_EQ(sum, expected);
    }
  }
}

TEST(GatherTest, SaysWhichIndexIsWrong) {
  for (double wrong : {-5.0, 4.0}) {
    KernelCase kernel("gather", {{"axis", int64_t{0}}});
    kernel.In(DType::kF32, {4, 1}, {1, 2, 3, 4}).In(DType::kI64, {3}, {0, 3, wrong});
    kernel.Out(DType::kF32, {3, 1});
    const absl::Status status = kernel.Run();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_EQ(status.message(), "gather 'test/gather': index " +
                                    std::to_string(static_cast<int>(wrong)) +
                                    " at position 2 is outside [-4, 4)");
  }
}

TEST(GatherTest, OneHot) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64,
                      DType::kBool}) {
    KernelCase kernel("one_hot", {{"depth", int64_t{3}}, {"dtype", dtype}});
    kernel.In(DType::kI32, {3}, {2, 0, 1}).Out(dtype, {3, 3});
    ASSERT_TRUE(kernel.Run().ok());
    EXPECT_EQ(kernel.Output(), (Values{0, 0, 1, 1, 0, 0, 0, 1, 0}));
  }
}

// Runs `op` on regions of an [8, 3, 10] tensor, batch in two acts, and returns the whole.
Values Assemble(const std::string& op, const Attrs& attrs, DType dtype, int axis, int64_t parts,
                const Values* input) {
  const Shape logical = {8, 3, 10};
  Values whole(240);
  for (int64_t part = 0; part < parts; ++part) {
    OperandSpec operand = KernelCase::Operand(dtype, logical);
    operand.micro_batch_axis = 0;
    operand.micro_batch_stride = 4;
    operand.region.size[0] = 4;
    const Interval interval = SplitEvenly(operand.region.size[axis], parts, part);
    operand.region.offset[axis] = interval.offset;
    operand.region.size[axis] = interval.size;
    for (int64_t act : {0, 1}) {
      Region now = operand.region;
      now.offset[0] += 4 * act;
      KernelCase kernel(op, attrs);
      if (input != nullptr) kernel.In(operand, Cut(*input, logical, now));
      kernel.Out(operand);
      kernel.run().step = 5;
      kernel.run().micro_batch = act;
      EXPECT_TRUE(kernel.Run().ok());
      const Values values = kernel.Output();
      for (size_t i = 0; i < values.size(); ++i) {
        Ints index = IndexOf(now.size, static_cast<int64_t>(i));
        for (size_t d = 0; d < 3; ++d) index[d] += now.offset[d];
        whole[FlatOf(logical, index)] = values[i];
      }
    }
  }
  return whole;
}

TEST(RandomTest, RegionsHoldTheLogicalNumbers) {
  const Attrs dropout = {{"key", "layer/drop"}, {"rate", 0.4}};
  const Attrs uniform = {{"low", -2.0}, {"high", 3.0}}, normal = {{"mean", 1.0}, {"stddev", 2.0}};
  for (DType dtype : kFloatTypes) {
    const Values x = RandomValues({8, 3, 10}, dtype, 1, 1, 2);
    Values expect_dropout(240), expect_uniform(240), expect_normal(240);
    const RandomKey drop_key = MakeRandomKey(7, "layer/drop", 5);
    const RandomKey uniform_key = MakeRandomKey(7, "test/random_uniform", 5);
    const RandomKey normal_key = MakeRandomKey(7, "test/random_normal", 5);
    int kept = 0;
    for (uint64_t i = 0; i < 240; ++i) {
      const bool keep = UniformAt(drop_key, i) >= 0.4f;
      kept += keep;
      expect_dropout[i] = keep ? x[i] / 0.6 : 0;
      const double u =
          dtype == DType::kF64 ? UniformDoubleAt(uniform_key, i) : UniformAt(uniform_key, i);
      expect_uniform[i] = -2 + 5 * u;
      expect_normal[i] = 1 + 2 * NormalAt(normal_key, i);
    }
    EXPECT_GT(kept, 110);
    EXPECT_LT(kept, 180);
    for (int axis : {0, 1, 2}) {
      for (int64_t parts : {1, 2, 3}) {
        SCOPED_TRACE(std::string(ToString(dtype)) + " axis " + std::to_string(axis));
        ExpectNear(Assemble("dropout", dropout, dtype, axis, parts, &x), expect_dropout,
                   2 * Epsilon(dtype));
        ExpectNear(Assemble("random_uniform", uniform, dtype, axis, parts, nullptr), expect_uniform,
                   2 * Epsilon(dtype));
        ExpectNear(Assemble("random_normal", normal, dtype, axis, parts, nullptr), expect_normal,
                   4 * Epsilon(dtype));
      }
    }
  }
}

TEST(RandomTest, DropoutOfManyElements) {
  // Longer than the chunks it works in, from an odd logical index on.
  OperandSpec operand = KernelCase::Operand(DType::kF32, {30001});
  operand.region.offset[0] = 4999;
  operand.region.size[0] = 25001;
  KernelCase kernel("dropout", {{"key", "d"}, {"rate", 0.25}});
  kernel.In(operand, Values(25001, 3.0)).Out(operand).Inplace(0);
  ASSERT_TRUE(kernel.Run().ok());
  const RandomKey key = MakeRandomKey(7, "d", 0);
  const Values out = kernel.Output();
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], UniformAt(key, 4999 + i) >= 0.25f ? 4.0 : 0.0) << i;
  }
}

TEST(GeneratorTest, ConstantIotaStep) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64,
                      DType::kU8}) {
    KernelCase constant("constant", {{"value", 3.0}});
    constant.Out(dtype, {5});
    ASSERT_TRUE(constant.Run().ok());
    EXPECT_EQ(constant.Output(), Values(5, 3.0));
    OperandSpec operand = KernelCase::Operand(dtype, {6, 2});
    operand.region.offset[0] = 1;
    operand.region.size[0] = 2;
    operand.micro_batch_axis = 0;
    operand.micro_batch_stride = 3;
    KernelCase iota("iota", {{"axis", int64_t{0}}});
    iota.Out(operand);
    iota.run().micro_batch = 1;
    ASSERT_TRUE(iota.Run().ok());
    EXPECT_EQ(iota.Output(), (Values{4, 4, 5, 5}));
  }
  KernelCase step("step");
  step.Out(DType::kI64, {});
  step.run().step = 1234;
  ASSERT_TRUE(step.Run().ok());
  EXPECT_EQ(step.Output(), Values{1234});
}

TEST(OptimizerTest, SgdAndMomentum) {
  for (DType dtype : kFloatTypes) {
    const Values var = RandomValues({37}, dtype, 1), grad = RandomValues({37}, dtype, 2);
    const Values velocity = RandomValues({37}, dtype, 3);
    const double lr = 0.5;
    KernelCase sgd("sgd_update", {{"weight_decay", 0.1}});
    sgd.In(dtype, {37}, var).In(dtype, {37}, grad).In(DType::kF32, {}, {lr});
    ASSERT_TRUE(sgd.Run().ok());
    Values expected;
    for (size_t i = 0; i < 37; ++i) expected.push_back(var[i] - lr * (grad[i] + 0.1 * var[i]));
    ExpectNear(sgd.Input(0), expected, 4 * Epsilon(dtype));
    for (bool nesterov : {false, true}) {
      KernelCase momentum("momentum_update",
                          {{"momentum", 0.9}, {"nesterov", nesterov}, {"weight_decay", 0.1}});
      momentum.In(dtype, {37}, var).In(dtype, {37}, grad).In(dtype, {37}, velocity);
      momentum.In(dtype, {}, {lr});
      ASSERT_TRUE(momentum.Run().ok());
      Values new_velocity;
      for (size_t i = 0; i < 37; ++i) {
        const double g = grad[i] + 0.1 * var[i];
        new_velocity.push_back(0.9 * velocity[i] + g);
        expected[i] = var[i] - lr * (nesterov ? g + 0.9 * new_velocity[i] : new_velocity[i]);
      }
      ExpectNear(momentum.Input(0), expected, 6 * Epsilon(dtype));
      ExpectNear(momentum.Input(2), new_velocity, 6 * Epsilon(dtype));
      EXPECT_EQ(momentum.Input(1), grad);
    }
  }
}

TEST(OptimizerTest, AdamAndAdamW) {
  for (DType dtype : kFloatTypes) {
    for (bool decoupled : {false, true}) {
      Values var = RandomValues({37}, dtype, 1), m(37), v(37);
      const Values grad = RandomValues({37}, dtype, 2);
      KernelCase adam("adam_update", {{"beta1", 0.9},
                                      {"beta2", 0.99},
                                      {"epsilon", 1e-3},
                                      {"weight_decay", 0.1},
                                      {"decoupled", decoupled}});
      adam.In(dtype, {37}, var).In(dtype, {37}, grad).In(dtype, {37}, m).In(dtype, {37}, v);
      adam.In(DType::kF64, {}, {0.25}).In(DType::kI64, {}, {2});  // the third step
      ASSERT_TRUE(adam.Run().ok());
      for (size_t i = 0; i < 37; ++i) {
        if (decoupled) var[i] *= 1 - 0.25 * 0.1;
        const double g = grad[i] + (decoupled ? 0 : 0.1 * var[i]);
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.99 * v[i] + 0.01 * g * g;
        const double m_hat = m[i] / (1 - std::pow(0.9, 3)), v_hat = v[i] / (1 - std::pow(0.99, 3));
        var[i] -= 0.25 * m_hat / (std::sqrt(v_hat) + 1e-3);
      }
      ExpectNear(adam.Input(0), var, 8 * Epsilon(dtype));
      ExpectNear(adam.Input(2), m, 8 * Epsilon(dtype));
      ExpectNear(adam.Input(3), v, 8 * Epsilon(dtype));
    }
  }
  KernelCase assign("assign");
  assign.In(DType::kBF16, {2}, {1, 2}).In(DType::kBF16, {2}, {3, 4});
  ASSERT_TRUE(assign.Run().ok());
  EXPECT_EQ(assign.Input(0), (Values{3, 4}));
}

}  // namespace
}  // namespace braid
