// Functions that are composites: values against loops over all indices, gradients against
// differences, and what they say of operands that do not fit.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/conformance/graph_interpreter.h"
#include "api/conformance/operator_case.h"
#include "api/conformance/operator_gradient.h"
#include "graph/functional.h"
#include "graph/op_registry.h"

namespace braid::conformance {
namespace {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;
using Tensors = std::vector<Tensor>;

struct Result {
  std::string error;
  Shape shape;
  Doubles values;
};

class IndexCompositesTest : public testing::Test {
 protected:
  // What `build` makes of inputs with these values.
  Result Evaluate(const std::vector<Array>& inputs, const std::function<Tensor(Tensors)>& build) {
    LogicalGraph graph(&ops_);
    Tensors tensors;
    for (const Array& input : inputs) {
      tensors.push_back(
          Input(graph, "in" + std::to_string(tensors.size()), {input.dtype(), input.shape()}));
    }
    const Tensor y = build(tensors);
    if (!graph.status().ok()) return {std::string(graph.status().message()), {}, {}};
    auto interpreter = GraphInterpreter::Make(graph, kernels_);
    if (!interpreter.ok()) return {interpreter.status().ToString(), {}, {}};
    for (size_t i = 0; i < inputs.size(); ++i) {
      interpreter->Set("in" + std::to_string(i), inputs[i]);
    }
    const absl::Status status = interpreter->Run();
    if (!status.ok()) return {status.ToString(), {}, {}};
    return {"", y.shape(), Numbers(interpreter->value(y))};
  }

  static std::vector<Array> Draw(const std::vector<Shape>& shapes) {
    OpCase c;
    for (const Shape& shape : shapes) c.inputs.push_back({DType::kF64, shape});
    return DrawInputs(c);
  }

  void CheckGradientOf(const std::vector<Shape>& shapes,
                       const std::function<Tensor(Tensors)>& build) {
    OpCase c = {.label = "composite"};
    for (const Shape& shape : shapes) c.inputs.push_back({DType::kF64, shape});
    const GradientCheck check =
        CheckGradient(ops_, kernels_, c, [&](const Tensors& in) { return Tensors{build(in)}; });
    EXPECT_EQ(check.error, "");
    EXPECT_GT(check.derivatives, 0);
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();
};

struct EinsumCase {
  std::string equation;
  std::vector<Shape> shapes;
  // The same without dots, all letters written out; "" where it is the equation itself.
  std::string plain = "";
};

// All indices of all letters, one after another. Dims of 1 are read at 0.
Result ByLoops(const EinsumCase& c, const std::vector<Array>& inputs) {
  const std::string text = c.plain.empty() ? c.equation : c.plain;
  const size_t arrow = text.find("->");
  std::vector<std::string> terms(1);
  for (char letter : text.substr(0, arrow)) {
    if (letter == ',') {
      terms.emplace_back();
    } else {
      terms.back() += letter;
    }
  }
  const std::string out = text.substr(arrow + 2);
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < terms.size(); ++i) {
    for (size_t axis = 0; axis < terms[i].size(); ++axis) {
      int64_t& size = sizes[terms[i][axis]];
      size = std::max(size, c.shapes[i][static_cast<int>(axis)]);
    }
  }
  const auto place = [&](const std::string& letters, const Shape& shape,
                         const std::map<char, int64_t>& at) {
    int64_t flat = 0;
    for (size_t axis = 0; axis < letters.size(); ++axis) {
      const int64_t size = shape[static_cast<int>(axis)];
      flat = flat * size + (size == 1 ? 0 : at.at(letters[axis]));
    }
    return flat;
  };
  Ints dims;
  for (char letter : out) dims.push_back(sizes[letter]);
  Result result = {"", Shape(dims), Doubles(Shape(dims).num_elements(), 0.0)};
  std::map<char, int64_t> at;
  for (const auto& [letter, size] : sizes) at[letter] = 0;
  while (true) {
    double product = 1;
    for (size_t i = 0; i < terms.size(); ++i) {
      product *= inputs[i].data<double>()[place(terms[i], c.shapes[i], at)];
    }
    result.values[place(out, result.shape, at)] += product;
    auto next = at.begin();
    while (next != at.end() && ++next->second == sizes[next->first]) (next++)->second = 0;
    if (next == at.end()) return result;
  }
}

TEST_F(IndexCompositesTest, EinsumAgreesWithLoops) {
  const std::vector<EinsumCase> cases = {
      {"ij,jk->ik", {{3, 4}, {4, 5}}},
      {"bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}}},
      {"bij, bkj -> bik", {{2, 3, 4}, {2, 5, 4}}, "bij,bkj->bik"},
      {"bji,bjk->bik", {{2, 4, 3}, {2, 4, 5}}},
      {"ij->ji", {{3, 4}}},
      {"ij->", {{3, 4}}},
      {"ij->j", {{3, 4}}},
      {"ii->i", {{4, 4}}},
      {"ii", {{4, 4}}, "ii->"},
      {"ba", {{2, 3}}, "ba->ab"},
      {"i,i", {{5}, {5}}, "i,i->"},
      {"i,j->ij", {{3}, {4}}},
      {"bi,bi->b", {{3, 4}, {3, 4}}},
      {"iji,jk->k", {{3, 2, 3}, {2, 4}}},
      {"bhqd,bhkd->bhqk", {{2, 2, 3, 4}, {2, 2, 5, 4}}},
      {"bqhd,bkhd->bhqk", {{2, 3, 2, 4}, {2, 5, 2, 4}}},
      {"ab,bc,cd->ad", {{2, 3}, {3, 4}, {4, 5}}},
      {"ab,cd,ac->bd", {{2, 3}, {4, 5}, {2, 4}}},
      {"abc,abd,ab->cd", {{2, 3, 4}, {2, 3, 5}, {2, 3}}},
      {"a,b,c->cab", {{2}, {3}, {4}}},
      {"...ij,...jk->...ik", {{2, 1, 3, 4}, {5, 4, 2}}, "xyij,yjk->xyik"},
      {"...i,i->...", {{2, 3, 4}, {4}}, "xyi,i->xy"},
      {"...ii->...i", {{2, 3, 3}}, "xii->xi"},
      {"i...,...i", {{3, 2}, {2, 3}}, "ix,xi->x"},
      {"ijk,jil->kl", {{3, 4, 5}, {4, 3, 2}}},
      {"abij,abjk->abik", {{2, 1, 3, 2}, {2, 1, 2, 4}}},
  };
  for (const EinsumCase& c : cases) {
    SCOPED_TRACE(c.equation);
    const std::vector<Array> inputs = Draw(c.shapes);
    const auto build = [&](const Tensors& in) { return Einsum(c.equation, in); };
    const Result actual = Evaluate(inputs, build), expected = ByLoops(c, inputs);
    ASSERT_EQ(actual.error, "");
    EXPECT_EQ(actual.shape, expected.shape);
    ASSERT_EQ(actual.values.size(), expected.values.size());
    for (size_t i = 0; i < expected.values.size(); ++i) {
      EXPECT_NEAR(actual.values[i], expected.values[i], 1e-12) << i;
    }
    CheckGradientOf(c.shapes, build);
  }
}

TEST_F(IndexCompositesTest, EinsumSaysWhatIsWrong) {
  const auto error = [&](const char* equation, const std::vector<Shape>& shapes) {
    const std::string text =
        Evaluate(Draw(shapes), [&](const Tensors& in) { return Einsum(equation, in); }).error;
    return text.substr(0, text.rfind(" ("));
  };
  EXPECT_EQ(error("ij,jk->ik", {{3, 4}, {5, 6}}),
            "einsum 'ij,jk->ik': letter j is 4 in operand 0 and 5 in operand 1");
  EXPECT_EQ(error("ii->i", {{3, 4}}),
            "einsum 'ii->i': letter i is 3 in operand 0 and 4 in operand 0");
  EXPECT_EQ(error("ij->k", {{3, 4}}), "einsum 'ij->k': letter k of the result is in no operand");
  EXPECT_EQ(error("ij->ii", {{3, 4}}), "einsum 'ij->ii': letter i stands twice in the result");
  EXPECT_EQ(error("ij,j", {{3, 4}}), "einsum 'ij,j': it names 2 operands, there are 1");
  EXPECT_EQ(error("ij", {{3, 4, 5}}), "einsum 'ij': operand 0 is f64[3, 4, 5], 'ij' names 2 axes");
  EXPECT_EQ(error("i2", {{3, 4}}), "einsum 'i2': '2' is no letter");
  EXPECT_EQ(error("...i,...i", {{2, 3}, {4, 3}}),
            "einsum '...i,...i': a dim of '...' is 2 in operand 0 and 4 in operand 1");
}

TEST_F(IndexCompositesTest, Layout) {
  const Array x = Array::FromVector<double>({2, 3}, {0, 1, 2, 3, 4, 5});
  const auto values = [&](const std::function<Tensor(Tensor)>& f) {
    const Result result = Evaluate({x}, [&](const Tensors& in) { return f(in[0]); });
    EXPECT_EQ(result.error, "");
    CheckGradientOf({{2, 3}}, [&](const Tensors& in) { return f(in[0]); });
    return result.values;
  };
  EXPECT_EQ(values([](Tensor t) {
              return Tile(t, {1, 2});
            }),
            (Doubles{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(values([](Tensor t) {
              return Tile(t, {2, 1, 1});
            }),
            (Doubles{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values([](Tensor t) { return RepeatInterleave(t, 2, 1); }),
            (Doubles{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
  EXPECT_EQ(values([](Tensor t) { return Flip(t, {0, -1}); }), (Doubles{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values([](Tensor t) { return Roll(t, {1, -4}, {0, 1}); }), (Doubles{4, 5, 3, 1, 2, 0}));
  EXPECT_EQ(values([](Tensor t) { return Tril(t); }), (Doubles{0, 0, 0, 3, 4, 0}));
  EXPECT_EQ(values([](Tensor t) { return SliceAxis(t, 1, {.step = -2}); }), (Doubles{2, 0, 5, 3}));
  EXPECT_EQ(values([](Tensor t) { return SliceAxis(t, -1, {.begin = -2, .end = 100}); }),
            (Doubles{1, 2, 4, 5}));
  EXPECT_EQ(values([](Tensor t) {
              return Slice(t, {0, 2}, {-1, -1}, {1, -2});
            }),
            (Doubles{2, 0, 5, 3}));
  EXPECT_EQ(values([](Tensor t) { return Diagonal(SliceAxis(t, 1, {.begin = 1}), 0, 1); }),
            (Doubles{1, 5}));
  EXPECT_EQ(values([](Tensor t) {
              return DepthToSpace(SpaceToDepth(Reshape(Tile(t, {2, 2}), {1, 1, 4, 6}), 2), 2);
            }),
            (Doubles{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
}

TEST_F(IndexCompositesTest, Indices) {
  const Array table = Array::FromVector<double>({3, 2}, {0, 1, 2, 3, 4, 5});
  const Array rows = Array::FromVector<int64_t>({3}, {2, 0, -1});
  const Array updates = Array::FromVector<double>({3, 2}, {10, 20, 30, 40, 50, 60});
  const auto values = [&](const std::function<Tensor(Tensors)>& f) {
    const Result result = Evaluate({table, rows, updates}, f);
    EXPECT_EQ(result.error, "");
    return result.values;
  };
  EXPECT_EQ(values([](const Tensors& in) { return IndexAdd(in[0], in[1], in[2]); }),
            (Doubles{30, 41, 2, 3, 64, 85}));
  EXPECT_EQ(values([](const Tensors& in) {
              return ScatterNd(in[0], ExpandDims(in[1], 1), in[2],
                               {.reduction = ScatterReduction::kAdd});
            }),
            (Doubles{30, 41, 2, 3, 64, 85}));
  EXPECT_EQ(values([](const Tensors& in) { return TakeAlong(in[0], ExpandDims(in[1], 1), 0); }),
            (Doubles{4, 5, 0, 1, 4, 5}));
  EXPECT_EQ(
      values([](const Tensors& in) { return OneHot(in[1], 3, {.axis = 0, .dtype = DType::kF64}); }),
      (Doubles{0, 1, 0, 0, 0, 0, 1, 0, 1}));
  EXPECT_EQ(values([](const Tensors& in) {
              return Eye(*in[0].graph(), 2, 3, {.diagonal = 1, .dtype = DType::kF64});
            }),
            (Doubles{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(
      values([](const Tensors& in) { return Range(*in[0].graph(), 3, {.start = 5, .delta = -2}); }),
      (Doubles{5, 3, 1}));
}

}  // namespace
}  // namespace braid::conformance
