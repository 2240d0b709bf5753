// Plain files of weights: what is loaded under any layout, and what mistakes say.

#include <braid/braid.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/files/weight_files.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Variables fc.weight [4, 6] and fc.bias [6], a table [5, 3], and Adam's states.
void Record(Job& job) {
  const bool is_split = job.devices().size() > 1;
  const auto rows = is_split ? std::optional<NdSbp>(sbp::S(0)) : std::nullopt;
  const auto columns = is_split ? std::optional<NdSbp>(sbp::S(1)) : std::nullopt;
  const Tensor x = job.Input("x", {2, 4});
  const Tensor i = job.Input("i", {2}, DType::kI32);
  const Tensor y = Linear(x, 6, {.name = "fc", .weight = columns});
  const Tensor z = EmbeddingLayer(i, 5, 3, {.name = "table", .weight = rows});
  job.Minimize(Mean(Square(y)) + Mean(Square(z)), Adam{});
}

class WeightsTest : public testing::Test {
 protected:
  void Start(std::vector<int> devices = {1}, const std::function<void(Job&)>& record = Record) {
    auto session = Session::Start({.devices = std::move(devices), .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
    const auto job = session_->Compile("train", record);
    ASSERT_TRUE(job.ok()) << job.status().message();
  }
  std::vector<double> Get(const std::string& name) {
    const auto value = session_->Get(name);
    EXPECT_TRUE(value.ok()) << value.status().message();
    if (!value.ok()) return {};
    const Array numbers = value->As(DType::kF64);
    return {numbers.data<double>().begin(), numbers.data<double>().end()};
  }
  // 0, 1, 2, ... times `factor`, in a file.
  struct Stored {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
    double factor = 1;
  };
  void Put(const std::string& file, const std::vector<Stored>& tensors) {
    std::vector<Array> arrays;
    std::vector<TensorBytes> bytes;
    for (const Stored& stored : tensors) {
      Array numbers(DType::kF64, stored.shape);
      for (int64_t i = 0; i < numbers.num_elements(); ++i) {
        numbers.mutable_data<double>()[i] = stored.factor * static_cast<double>(i);
      }
      arrays.push_back(numbers.As(stored.dtype));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      bytes.push_back({{tensors[i].name, tensors[i].dtype, tensors[i].shape}, arrays[i].bytes()});
    }
    unlink((dir_ / file).c_str());
    ASSERT_TRUE(WriteSafetensors(dir_ / file, bytes, {}).ok());
  }
  std::string LoadError(const std::string& file, const WeightsOptions& options = {}) {
    return std::string(session_->LoadWeights(dir_ / file, options).message());
  }

  TempDir dir_;
  std::unique_ptr<Session> session_;
};

std::vector<double> Counted(int64_t count, double factor = 1) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(factor * static_cast<double>(i));
  return numbers;
}

TEST_F(WeightsTest, LoadsEveryFloatingTypeUnderAnyLayout) {
  for (const std::vector<int>& devices : std::vector<std::vector<int>>{{1}, {3}, {1, 2}}) {
    Start(devices);
    Put("a.safetensors", {{"fc.weight", DType::kBF16, {4, 6}},
                          {"fc.bias", DType::kF16, {6}, 0.25},
                          {"table.weight", DType::kF64, {5, 3}, -1}});
    ASSERT_EQ(LoadError("a.safetensors"), "");
    EXPECT_EQ(Get("fc.weight"), Counted(24));
    EXPECT_EQ(Get("fc.bias"), Counted(6, 0.25));
    EXPECT_EQ(Get("table.weight"), Counted(15, -1));
    EXPECT_EQ(Get("fc.weight.adam_m"), Counted(24, 0));  // no file needs them
  }
}

TEST_F(WeightsTest, LoadsAFolderOfArrays) {
  Start();
  ASSERT_TRUE(
      Array::FromVector<double>({4, 6}, Counted(24, 2)).WriteNpy(dir_ / "fc.weight.npy").ok());
  ASSERT_TRUE(Array::FromVector<double>({6}, Counted(6)).WriteNpy(dir_ / "fc.bias.npy").ok());
  ASSERT_TRUE(
      Array::FromVector<double>({5, 3}, Counted(15)).WriteNpy(dir_ / "table.weight.npy").ok());
  ASSERT_EQ(LoadError(""), "");
  EXPECT_EQ(Get("fc.weight"), Counted(24, 2));
}

// A file of another framework: [out, in], tensors that hold several variables, a prefix, and more
// than is needed.
WeightsOptions OtherNames() {
  return {.rule = [](const std::string& name) -> std::optional<WeightSource> {
            if (name == "fc.weight") return WeightSource{.name = "dense.kernel", .transpose = true};
            if (name == "fc.bias") return WeightSource{.name = "vectors", .parts = 2, .part = 1};
            return WeightSource{.name = "tables", .axis = 1, .parts = 3, .part = 2};
          },
          .prefix = "model.",
          .ignore = [](const std::string& name) { return name.ends_with(".mask"); }};
}

TEST_F(WeightsTest, ARuleNamesTransposesAndCuts) {
  Start({2});
  Put("a.safetensors", {{"model.dense.kernel", DType::kF32, {6, 4}},
                        {"model.vectors", DType::kF32, {12}},
                        {"tables", DType::kF32, {5, 9}},
                        {"model.attn.mask", DType::kBool, {1}}});
  ASSERT_EQ(LoadError("a.safetensors", OtherNames()), "");
  EXPECT_EQ(Get("fc.weight"), (std::vector<double>{0, 4, 8,  12, 16, 20, 1, 5, 9,  13, 17, 21,
                                                   2, 6, 10, 14, 18, 22, 3, 7, 11, 15, 19, 23}));
  EXPECT_EQ(Get("fc.bias"), (std::vector<double>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(Get("table.weight"),
            (std::vector<double>{6, 7, 8, 15, 16, 17, 24, 25, 26, 33, 34, 35, 42, 43, 44}));
}

TEST_F(WeightsTest, WhatIsSavedIsLoadedAgain) {
  Start({2});
  const WeightsOptions swapped = {
      .rule = [](const std::string& name) -> std::optional<WeightSource> {
        if (name == "table.weight") return std::nullopt;
        return WeightSource{.name = "x." + name, .transpose = name == "fc.weight"};
      },
      .prefix = "model."};
  Put("a.safetensors", {{"x.fc.weight", DType::kF32, {6, 4}}, {"x.fc.bias", DType::kF32, {6}}});
  ASSERT_EQ(LoadError("a.safetensors", swapped), "");
  const std::vector<double> table = Get("table.weight"), weight = Get("fc.weight");
  for (int i = 0; i < 2; ++i) {  // the second replaces the first
    const absl::Status saved = session_->SaveWeights(dir_ / "b.safetensors", swapped);
    ASSERT_TRUE(saved.ok()) << saved.message();
  }
  const auto files = WeightFiles::Open(dir_ / "b.safetensors");
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_EQ(files->tensors().size(), 2u);
  const auto stored = files->Read("model.x.fc.weight");
  ASSERT_TRUE(stored.ok()) << stored.status().message();
  EXPECT_EQ(stored->shape(), (Shape{6, 4}));
  EXPECT_EQ(stored->data<float>()[1], 1);
  Start({1});
  ASSERT_EQ(LoadError("b.safetensors", swapped), "");
  EXPECT_EQ(Get("fc.weight"), weight);
  // Without options: everything by its own name.
  ASSERT_TRUE(session_->SaveWeights(dir_ / "c.safetensors").ok());
  Start({3});
  ASSERT_EQ(LoadError("c.safetensors"), "");
  EXPECT_EQ(Get("fc.weight"), weight);
  EXPECT_EQ(Get("table.weight").size(), table.size());
}

TEST_F(WeightsTest, PartsArePutTogether) {
  Start({1}, [](Job& job) {
    const Tensor x = job.Input("x", {2, 2});
    job.Fetch("y", Linear(x, 3, {.name = "q"}) + Linear(x, 3, {.name = "k"}));
  });
  const auto rule = [](const std::string& name) {
    const bool is_weight = name.ends_with("weight");
    return WeightSource{.name = is_weight ? "qk.weight" : "qk.bias",
                        .axis = is_weight ? 1 : 0,
                        .parts = 2,
                        .part = name.starts_with("q") ? 0 : 1};
  };
  Put("a.safetensors", {{"qk.weight", DType::kF32, {2, 6}}, {"qk.bias", DType::kF32, {6}}});
  ASSERT_EQ(LoadError("a.safetensors", {.rule = rule}), "");
  EXPECT_EQ(Get("k.weight"), (std::vector<double>{3, 4, 5, 9, 10, 11}));
  ASSERT_TRUE(session_->SaveWeights(dir_ / "b.safetensors", {.rule = rule}).ok());
  const auto files = WeightFiles::Open(dir_ / "b.safetensors");
  ASSERT_TRUE(files.ok()) << files.status().message();
  const Array weight = *files->Read("qk.weight"), bias = *files->Read("qk.bias");
  EXPECT_EQ(weight.shape(), (Shape{2, 6}));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(weight.data<float>()[i], i);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(bias.data<float>()[i], i);
  const auto half = [&](const std::string& name) -> std::optional<WeightSource> {
    return name.starts_with("q") ? std::nullopt : std::make_optional(rule(name));
  };
  EXPECT_THAT(std::string(session_->SaveWeights(dir_ / "b.safetensors", {.rule = half}).message()),
              HasSubstr("tensor 'qk.bias' has 2 parts and no variable is part 0"));
  const auto same = [&](const std::string& name) {
    WeightSource source = rule(name);
    source.part = 0;
    return source;
  };
  EXPECT_THAT(std::string(session_->SaveWeights(dir_ / "b.safetensors", {.rule = same}).message()),
              HasSubstr("the rule must give every part to one variable"));
}

TEST_F(WeightsTest, Mistakes) {
  Start({2});
  const std::vector<double> before = Get("fc.bias");
  Put("a.safetensors", {{"fc.weight", DType::kF32, {4, 6}},
                        {"fc.b", DType::kF32, {6}},
                        {"table.weight", DType::kF32, {5, 3}}});
  EXPECT_THAT(LoadError("a.safetensors"),
              AllOf(HasSubstr("a.safetensors' lacks 1 tensors: 'fc.bias'; it has others that no "
                              "variable takes: 'fc.b'"),
                    HasSubstr("WeightsOptions::rule")));
  Put("a.safetensors", {{"fc.weight", DType::kF32, {4, 6}},
                        {"fc.bias", DType::kF32, {6}},
                        {"more", DType::kF32, {1}},
                        {"table.weight", DType::kF32, {5, 3}}});
  EXPECT_THAT(LoadError("a.safetensors"),
              AllOf(HasSubstr("has 1 tensors that no variable takes: 'more'"),
                    HasSubstr("WeightsOptions::ignore")));
  Put("a.safetensors", {{"fc.weight", DType::kF32, {6, 4}},
                        {"fc.bias", DType::kF32, {6}},
                        {"table.weight", DType::kF32, {5, 3}}});
  EXPECT_THAT(LoadError("a.safetensors"),
              AllOf(HasSubstr("variable 'fc.weight' is f32[4, 6], for which 'fc.weight' of"),
                    HasSubstr("should be [4, 6]; it is f32[6, 4]"),
                    HasSubstr("it fits with WeightSource::transpose")));
  Put("a.safetensors", {{"fc.weight", DType::kF32, {24}},
                        {"fc.bias", DType::kF32, {6}},
                        {"table.weight", DType::kF32, {5, 3}}});
  EXPECT_THAT(LoadError("a.safetensors"),
              HasSubstr("should be [4, 6]; it is f32[24]; the model or the rule"));
  Put("a.safetensors", {{"fc.weight", DType::kI32, {4, 6}},
                        {"fc.bias", DType::kF32, {6}},
                        {"table.weight", DType::kF32, {5, 3}}});
  EXPECT_THAT(LoadError("a.safetensors"), HasSubstr("only floating types are converted"));
  EXPECT_THAT(LoadError("a.safetensors", {.rule =
                                              [](const std::string& name) {
                                                return WeightSource{
                                                    .name = name, .axis = 1, .parts = 2};
                                              }}),
              HasSubstr("part 0 of 2 along axis 1"));
  EXPECT_THAT(LoadError("a.safetensors", {.rule =
                                              [](const std::string& name) {
                                                return WeightSource{.name = name,
                                                                    .transpose = true};
                                              }}),
              HasSubstr("it has no two axes to transpose"));
  Put("b.safetensors", {{"fc.bias", DType::kF32, {6}}, {"m.fc.bias", DType::kF32, {6}}});
  EXPECT_THAT(LoadError("b.safetensors", {.prefix = "m."}),
              HasSubstr("'fc.bias' and 'm.fc.bias', which are one name without the prefix 'm.'"));
  EXPECT_THAT(LoadError("none.safetensors"), HasSubstr("none.safetensors"));
  EXPECT_THAT(LoadError("a.safetensors", {.rule = [](const std::string&) { return std::nullopt; },
                                          .ignore = [](const std::string&) { return true; }}),
              HasSubstr("no compiled job has a variable that it holds"));
  EXPECT_EQ(Get("fc.bias"), before);  // nothing was set
}

}  // namespace
}  // namespace braid
