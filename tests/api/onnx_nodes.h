// Models of a few nodes that tests write, run and compare with each other's outputs.
#pragma once

#include <braid/braid.h>
#include <braid/onnx.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "tests/api/onnx_writer.h"
#include "tests/runtime/temp_dir.h"

namespace braid::onnx {

class NodesTest : public testing::Test {
 protected:
  NodesTest() {
    writer_.model().mutable_opset_import(0)->set_version(24);
    OperatorSetIdProto& domain = *writer_.model().add_opset_import();
    domain.set_domain("com.microsoft");
    domain.set_version(1);
  }

  // Nodes are named by their first output.
  NodeProto& Standard(const std::string& op, std::vector<std::string> inputs,
                      std::vector<std::string> outputs) {
    const std::string name = outputs[0];
    NodeProto& node = writer_.Add(op, std::move(inputs), std::move(outputs));
    node.set_name(name);
    return node;
  }
  NodeProto& Fused(const std::string& op, std::vector<std::string> inputs,
                   std::vector<std::string> outputs) {
    NodeProto& node = Standard(op, std::move(inputs), std::move(outputs));
    node.set_domain("com.microsoft");
    return node;
  }
  // [batch, time, heads * depth] as [batch, heads, time, depth].
  std::string Heads(const std::string& x, int64_t heads) {
    Ints("of_heads_" + x, {0, 0, heads, -1});
    Standard("Reshape", {x, "of_heads_" + x}, {"apart_" + x});
    IntsAttribute(Standard("Transpose", {"apart_" + x}, {"heads_" + x}), "perm", {0, 2, 1, 3});
    return "heads_" + x;
  }
  std::string Merged(const std::string& x) {
    IntsAttribute(Standard("Transpose", {x}, {"steps_" + x}), "perm", {0, 2, 1, 3});
    Ints("of_steps_" + x, {0, 0, -1});
    Standard("Reshape", {"steps_" + x, "of_steps_" + x}, {"merged_" + x});
    return "merged_" + x;
  }
  void Ints(const std::string& name, std::vector<int64_t> values) {
    const auto size = static_cast<int64_t>(values.size());
    writer_.Initializer(name, Array::FromVector<int64_t>({size}, values));
  }
  void Float(const std::string& name, float value) {
    writer_.Initializer(name, Array::FromVector<float>({}, {value}));
  }
  // An input of the model, unlike the numbers of which it knows nothing when it is imported.
  void Given(const std::string& name, Array array) {
    writer_.Input(name, array.shape().dims());
    const int type = array.dtype() == DType::kF32 ? 1 : array.dtype() == DType::kI32 ? 6 : 7;
    ValueInfoProto& info = *writer_.graph().mutable_input(writer_.graph().input_size() - 1);
    info.mutable_type()->mutable_tensor_type()->set_elem_type(type);
    given_.emplace_back(name, std::move(array));
  }
  void Given(const std::string& name, Shape shape, int seed) {
    Given(name, Numbers(std::move(shape), seed));
  }

  // The model's outputs on these devices, or why there are none.
  absl::StatusOr<std::vector<Array>> Run(const std::vector<std::string>& outputs,
                                         std::vector<int> devices) {
    writer_.graph().clear_output();
    for (const std::string& output : outputs) writer_.Output(output, {});
    const std::string path = folder_ / "model.onnx";
    PutFile(path, writer_.model().SerializeAsString());
    BRAID_ASSIGN_OR_RETURN(Model model, Load(path));
    BRAID_ASSIGN_OR_RETURN(
        const std::unique_ptr<Session> session,
        Session::Start({.devices = std::move(devices), .progress = Progress::kOff}));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("job", [&](Job& job) {
      std::vector<Argument> arguments;
      for (const auto& [name, array] : given_) {
        arguments.emplace_back(job.Input(name, array.shape(), array.dtype()));
      }
      const auto results = model.Apply(job, arguments);
      for (size_t i = 0; results.ok() && i < results->size(); ++i) {
        job.Fetch(outputs[i], (*results)[i]);
      }
    }));
    explanation_ = job.Explain();
    BRAID_RETURN_IF_ERROR(model.LoadInto(*session));
    BRAID_ASSIGN_OR_RETURN(const auto result, job.Run({.feeds = given_}));
    std::vector<Array> values;
    for (const std::string& output : outputs) values.push_back(result.Last(output));
    return values;
  }

  // Pairs of outputs, on one device and on several.
  void ExpectEqual(const std::vector<std::pair<std::string, std::string>>& pairs) {
    std::vector<std::string> outputs;
    const auto index_of = [&](const std::string& name) -> size_t {
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i] == name) return i;
      }
      outputs.push_back(name);
      return outputs.size() - 1;
    };
    std::vector<std::pair<size_t, size_t>> indices;
    for (const auto& [one, other] : pairs) {
      const size_t index = index_of(one);
      indices.emplace_back(index, index_of(other));
    }
    for (const std::vector<int>& devices : {std::vector<int>{1}, std::vector<int>{2, 2}}) {
      const auto values = Run(outputs, devices);
      ASSERT_TRUE(values.ok()) << values.status();
      for (const auto& [i, other] : indices) {
        const Array &actual = (*values)[i], &expected = (*values)[other];
        ASSERT_EQ(actual.shape(), expected.shape()) << outputs[i];
        for (int64_t j = 0; j < actual.num_elements(); ++j) {
          ASSERT_NEAR(actual.data<float>()[j], expected.data<float>()[j], 1e-5)
              << outputs[i] << " " << j << " on " << devices.size() << " nodes";
        }
      }
    }
  }
  std::string ErrorOf(const std::string& output) {
    const auto values = Run({output}, {1});
    return values.ok() ? "no error" : std::string(values.status().message());
  }

  ModelWriter writer_;
  std::vector<std::pair<std::string, Array>> given_;
  std::string explanation_;  // of the job that was run last
  const TempDir folder_;
};

}  // namespace braid::onnx
