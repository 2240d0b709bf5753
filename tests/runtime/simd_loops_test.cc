// The tables of inner loops: every instruction set that this machine has agrees with libm.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/norm_loops.h"
#include "runtime/kernels/cpu/product_loops.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/softmax_loops.h"

namespace braid::simd {
namespace {

// Floats in order, so that a difference counts representable values between.
int64_t Order(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits < 0 ? int64_t{std::numeric_limits<int32_t>::min()} - bits : bits;
}

struct Function {
  const char* name;
  UnaryOp op;
  double (*exact)(double);
  double low, high;
  bool logarithmic;
  int64_t ulps;
};

const Function kFunctions[] = {
    {"exp", UnaryOp::kExp, [](double x) { return std::exp(x); }, -104, 89.5, false, 2},
    {"log", UnaryOp::kLog, [](double x) { return std::log(x); }, 1e-44, 3e38, true, 2},
    {"log near 1", UnaryOp::kLog, [](double x) { return std::log(x); }, 0.5, 2, false, 2},
    {"tanh", UnaryOp::kTanh, [](double x) { return std::tanh(x); }, -12, 12, false, 2},
    {"tanh near 0", UnaryOp::kTanh, [](double x) { return std::tanh(x); }, 1e-40, 0.7, true, 2},
    {"expm1", UnaryOp::kExpm1, [](double x) { return std::expm1(x); }, -104, 89.5, false, 2},
    {"expm1 near 0", UnaryOp::kExpm1, [](double x) { return std::expm1(x); }, 1e-40, 1, true, 2},
    {"log1p", UnaryOp::kLog1p, [](double x) { return std::log1p(x); }, -1, 5, false, 2},
    {"log1p far", UnaryOp::kLog1p, [](double x) { return std::log1p(x); }, 1e-40, 3e38, true, 2},
    {"sin", UnaryOp::kSin, [](double x) { return std::sin(x); }, -3, 3, false, 2},
    {"sin near 0", UnaryOp::kSin, [](double x) { return std::sin(x); }, 1e-40, 1, true, 2},
    {"cos", UnaryOp::kCos, [](double x) { return std::cos(x); }, -1.5, 1.5, false, 2},
    {"sin far", UnaryOp::kSin, [](double x) { return std::sin(x); }, 1e5, 3e38, true, 2},
    {"erf", UnaryOp::kErf, [](double x) { return std::erf(x); }, -5, 5, false, 2},
    {"sigmoid", UnaryOp::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 90, false,
     3},
    {"gelu", UnaryOp::kGeluErf,
     [](double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); }, 0, 12, false, 3},
};

TEST(SimdLoopsTest, ElementaryFunctionsAreAccurate) {
  constexpr int kPoints = 200003;
  std::vector<float> x(kPoints), y(kPoints);
  for (Isa isa : kIsas) {
    if (isa > BestIsa()) break;
    for (const Function& f : kFunctions) {
      for (int i = 0; i < kPoints; ++i) {
        const double u = (i + 0.5) / kPoints;
        x[i] = static_cast<float>(f.logarithmic ? f.low * std::pow(f.high / f.low, u)
                                                : f.low + (f.high - f.low) * u);
      }
      const UnaryFn loop = LoopsFor<ElementwiseLoops>(isa).unary[static_cast<int>(f.op)][0];
      loop(x.data(), y.data(), kPoints, 0);
      int64_t worst = 0;
      float where = 0;
      for (int i = 0; i < kPoints; ++i) {
        const int64_t ulps = std::llabs(Order(y[i]) - Order(static_cast<float>(f.exact(x[i]))));
        if (ulps > worst) worst = ulps, where = x[i];
      }
      EXPECT_LE(worst, f.ulps) << NameOf(isa) << " " << f.name << " at " << where;
    }
  }
}

// The sums depend on values only: neither on where they lie nor on the instruction set's width.
TEST(SimdLoopsTest, SumsDoNotDependOnAlignment) {
  std::vector<float> values(20011);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * 3;
  for (size_t n : {size_t{0}, size_t{1}, size_t{31}, size_t{32}, size_t{1000}, size_t{20011}}) {
    for (Isa isa : kIsas) {
      if (isa > BestIsa()) break;
      for (size_t shift = 0; shift < 8; ++shift) {
        std::vector<float> moved(values.size() + shift);
        std::copy(values.begin(), values.end(), moved.begin() + static_cast<int64_t>(shift));
        EXPECT_EQ(
            LoopsFor<RowLoops<float>>(isa).sum(moved.data() + shift, static_cast<int64_t>(n)),
            LoopsFor<RowLoops<float>>(Isa::kBaseline).sum(values.data(), static_cast<int64_t>(n)));
      }
    }
  }
}

// Small whole numbers, so that every order of the sums is exact; strides wider than the rows, and
// what lies between them must stay as it was.
template <class T>
void CheckSmallProduct(const ProductLoops<T>& products, int64_t m, int64_t n, int64_t k,
                       bool transposed, bool adds) {
  const int64_t a_stride = (transposed ? m : k) + 3, b_stride = n + 5, c_stride = n + 2;
  // One row more: an operand has an address also without a term.
  std::vector<T> a(((transposed ? k : m) + 1) * a_stride), b((k + 1) * b_stride);
  std::vector<T> c(m * c_stride);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(static_cast<int>(i * 7 % 9) - 4);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(static_cast<int>(i * 5 % 7) - 3);
  for (size_t i = 0; i < c.size(); ++i) c[i] = static_cast<T>(i % 11);
  std::vector<T> expected = c;
  const int64_t a_row = transposed ? 1 : a_stride, a_step = transposed ? a_stride : 1;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      T sum = adds ? c[i * c_stride + j] : T{0};
      for (int64_t x = 0; x < k; ++x) sum += a[i * a_row + x * a_step] * b[x * b_stride + j];
      expected[i * c_stride + j] = sum;
    }
  }
  products.small_product({.rows = m,
                          .n = n,
                          .k = k,
                          .a = a.data(),
                          .a_row = a_row,
                          .a_step = a_step,
                          .b = b.data(),
                          .b_row = b_stride,
                          .c = c.data(),
                          .c_row = c_stride,
                          .adds = adds});
  EXPECT_EQ(c, expected) << m << "x" << n << "x" << k << (transposed ? " transposed" : "")
                         << (adds ? " added" : "");
}

template <class T>
void CheckRowProducts(const ProductLoops<T>& products, int64_t m, int64_t n, int64_t k) {
  const int64_t a_stride = k + 3, b_stride = k + 1, c_stride = n + 2;
  std::vector<T> a((m + 1) * a_stride), b((n + 1) * b_stride), c(m * c_stride);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(static_cast<int>(i * 7 % 9) - 4);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(static_cast<int>(i * 5 % 7) - 3);
  for (size_t i = 0; i < c.size(); ++i) c[i] = static_cast<T>(i % 11);
  std::vector<T> expected = c;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t x = 0; x < k; ++x) sum += a[i * a_stride + x] * b[j * b_stride + x];
      expected[i * c_stride + j] = sum;
    }
  }
  products.row_products({.rows = m,
                         .n = n,
                         .k = k,
                         .a = a.data(),
                         .a_row = a_stride,
                         .b = b.data(),
                         .b_row = b_stride,
                         .c = c.data(),
                         .c_row = c_stride});
  EXPECT_EQ(c, expected) << m << "x" << n << "x" << k;
}

TEST(SimdLoopsTest, ProductsOfRowsOfEverySize) {
  for (Isa isa : kIsas) {
    if (isa > BestIsa()) break;
    SCOPED_TRACE(NameOf(isa));
    for (int64_t m : {0, 1, 2, 3, 4, 7, 8, 11}) {
      for (int64_t n : {0, 1, 2, 3, 8, 17}) {
        for (int64_t k : {0, 1, 4, 15, 16, 33, 70}) {
          CheckRowProducts(LoopsFor<ProductLoops<float>>(isa), m, n, k);
          CheckRowProducts(LoopsFor<ProductLoops<double>>(isa), m, n, k);
        }
      }
    }
  }
}

TEST(SimdLoopsTest, SmallProductsOfEverySize) {
  for (Isa isa : kIsas) {
    if (isa > BestIsa()) break;
    SCOPED_TRACE(NameOf(isa));
    for (int64_t m : {0, 1, 2, 3, 5, 7, 8, 11, 23}) {
      for (int64_t n : {0, 1, 3, 8, 15, 16, 17, 32, 45, 64, 83}) {
        for (int64_t k : {0, 1, 2, 19}) {
          for (int form = 0; form < 4; ++form) {
            CheckSmallProduct(LoopsFor<ProductLoops<float>>(isa), m, n, k, form % 2 == 1,
                              form / 2 == 1);
            CheckSmallProduct(LoopsFor<ProductLoops<double>>(isa), m, n, k, form % 2 == 1,
                              form / 2 == 1);
          }
        }
      }
    }
  }
}

TEST(SimdLoopsTest, TransposesOfEverySize) {
  for (Isa isa : kIsas) {
    if (isa > BestIsa()) break;
    for (int64_t rows : {0, 1, 15, 16, 17, 40}) {
      for (int64_t columns : {0, 1, 7, 16, 33}) {
        std::vector<float> x((rows + 1) * (columns + 3)), y((columns + 1) * (rows + 2), -1);
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
        std::vector<float> expected = y;
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t column = 0; column < columns; ++column) {
            expected[column * (rows + 2) + row] = x[row * (columns + 3) + column];
          }
        }
        LoopsFor<ProductLoops<float>>(isa).transpose(x.data(), columns + 3, rows, columns, y.data(),
                                                     rows + 2);
        EXPECT_EQ(y, expected) << NameOf(isa) << " " << rows << "x" << columns;
      }
    }
  }
}

TEST(SimdLoopsTest, InstructionSetsAgree) {
  constexpr int64_t kN = 77;
  std::vector<float> x(kN), w(kN), expected(kN), y(kN);
  for (int64_t i = 0; i < kN; ++i) x[i] = std::cos(static_cast<float>(i)), w[i] = 0.1f * (i % 7);
  const auto& base_softmax = LoopsFor<SoftmaxLoops<float>>(Isa::kBaseline);
  const auto& base_norm = LoopsFor<NormLoops<float>>(Isa::kBaseline);
  for (Isa isa : kIsas) {
    if (isa > BestIsa()) break;
    base_softmax.softmax(x.data(), expected.data(), kN, 0.7f);
    LoopsFor<SoftmaxLoops<float>>(isa).softmax(x.data(), y.data(), kN, 0.7f);
    for (int64_t i = 0; i < kN; ++i) EXPECT_NEAR(y[i], expected[i], 1e-7);
    float mean[2], rstd[2];
    base_norm.layer_norm(x.data(), w.data(), w.data(), expected.data(), kN, 1e-5f, mean, rstd);
    LoopsFor<NormLoops<float>>(isa).layer_norm(x.data(), w.data(), w.data(), y.data(), kN, 1e-5f,
                                               mean + 1, rstd + 1);
    for (int64_t i = 0; i < kN; ++i) EXPECT_NEAR(y[i], expected[i], 1e-6);
    EXPECT_NEAR(mean[0], mean[1], 1e-7);
    EXPECT_NEAR(rstd[0], rstd[1], 1e-6);
  }
}

}  // namespace
}  // namespace braid::simd
