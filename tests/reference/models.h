// Three whole models and their training, made of the layers beside: what Braid's are held against.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/reference/layers.h"

namespace braid::reference {

struct Batch {
  Numbers images;           // or the rows of the MLP
  std::vector<int> tokens;  // of the GPT
  std::vector<int> labels;
};

// The value that a variable begins with, by its name.
using InitialValue = std::function<Numbers(const std::string&)>;

class Model {
 public:
  virtual ~Model() = default;
  // One step; the loss before it.
  virtual double Train(const Batch& batch) = 0;
  const Parameters& parameters() const { return parameters_; }
  const Parameters& statistics() const { return statistics_; }  // running ones
  const Margin& margin() const { return margin_; }

 protected:
  explicit Model(InitialValue initial) : initial_(std::move(initial)) {}
  Parameter* Trained(const std::string& name) { return Add(parameters_, name); }
  Parameter* Statistic(const std::string& name) { return Add(statistics_, name); }

  Parameters parameters_, statistics_;
  Margin margin_;

 private:
  Parameter* Add(Parameters& to, const std::string& name);
  InitialValue initial_;
};

// rows -> fc1, relu -> fc2, relu -> out -> cross entropy; Adam.
struct MlpShape {
  int64_t batch = 24, in = 20, hidden1 = 32, hidden2 = 16, classes = 5;
};
std::unique_ptr<Model> MakeMlp(const MlpShape& shape, const AdamOptions& adam,
                               InitialValue initial);

// conv1, norm1, relu -> max pooling -> conv2 of stride 2, norm2, relu -> depthwise, relu -> mean
// -> out -> cross entropy; momentum.
struct CnnShape {
  int64_t batch = 8, channels = 2, size = 8, features1 = 4, features2 = 6, classes = 5;
};
std::unique_ptr<Model> MakeCnn(const CnnShape& shape, const MomentumOptions& momentum,
                               InitialValue initial);

// tokens and positions -> h.i: x + attn(norm1(x)), x + proj(gelu(fc(norm2(x)))) -> norm -> head, or
// the tokens' table once more -> cross entropy; AdamW.
struct GptShape {
  int64_t batch = 4, time = 12, vocabulary = 17, width = 24, heads = 4, layers = 2;
  bool is_tied = false;
};
std::unique_ptr<Model> MakeGpt(const GptShape& shape, const AdamOptions& adam,
                               InitialValue initial);

}  // namespace braid::reference
