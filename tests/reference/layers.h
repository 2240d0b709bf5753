// Layers of the reference models, forward and backward written out in plain loops over doubles: no
// operator, kernel or library of Braid's is in them. Each keeps of its forward pass what its
// backward pass needs; a Backward adds to the gradients of the layer's parameters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace braid::reference {

using Numbers = std::vector<double>;  // in C order

// A variable, by Braid's name for it, with the states of both optimizers below.
struct Parameter {
  Numbers value;
  Numbers gradient;
  Numbers velocity;       // momentum
  Numbers first, second;  // Adam's moments
};
using Parameters = std::map<std::string, Parameter>;

// How near the model came to a kink, a place where a rounding error changes a gradient by more than
// that error: the smallest distance from it of anything that was computed, relative to the largest
// number beside it.
struct Margin {
  double smallest = 1e300;
  void Note(double distance, double scale);
};

// x [rows, in] times weight [in, out] plus bias [out], if there is one.
struct LinearLayer {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  int64_t in = 0, out = 0;
  Numbers x = {};
  Numbers Forward(const Numbers& input);
  Numbers Backward(const Numbers& dy);
};

struct ReluLayer {
  Margin* margin = nullptr;
  Numbers y = {};
  Numbers Forward(const Numbers& input);
  Numbers Backward(const Numbers& dy) const;
};

// The tanh form: Hendrycks and Gimpel, arXiv 1606.08415.
struct GeluLayer {
  Numbers x = {};
  Numbers Forward(const Numbers& input);
  Numbers Backward(const Numbers& dy) const;
};

struct Images {
  int64_t count = 0, channels = 0, height = 0, width = 0;
  int64_t size() const { return count * channels * height * width; }
  int64_t At(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return ((n * channels + c) * height + h) * width + w;
  }
};

// A correlation: weight [out, channels / groups, kernel, kernel], bias [out] or none.
struct ConvLayer {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  Images from = {};
  int64_t out = 0, kernel = 3, stride = 1, padding = 1, groups = 1;
  Numbers x = {};
  Images to() const;
  Numbers Forward(const Numbers& input);
  Numbers Backward(const Numbers& dy);
  // Calls visit(place in y, place in x, place in weight) for every product of the layer.
  template <typename Visit>
  void ForEachProduct(Visit visit) const;
};

// By the statistics of the batch, which move the running ones by `momentum`.
struct BatchNormLayer {
  Parameter* gamma = nullptr;
  Parameter* beta = nullptr;
  Parameter* running_mean = nullptr;
  Parameter* running_variance = nullptr;
  Images images = {};
  double epsilon = 1e-5, momentum = 0.1;
  Numbers normalized = {}, inverse_deviation = {};
  Numbers Forward(const Numbers& input);
  Numbers Backward(const Numbers& dy);
};

struct MaxPoolLayer {
  Margin* margin = nullptr;
  Images from = {};
  int64_t kernel = 3, stride = 2, padding = 1;
  std::vector<int64_t> chosen = {};  // by place in y: the place in x
  Images to() const;
  Numbers Forward(const Numbers& input);
  Numbers Backward(const Numbers& dy) const;
};

// The mean of each channel of each image.
struct GlobalMeanLayer {
  Images from = {};
  Numbers Forward(const Numbers& input) const;
  Numbers Backward(const Numbers& dy) const;
};

// Over the last axis, of `width`.
struct LayerNormLayer {
  Parameter* gamma = nullptr;
  Parameter* beta = nullptr;
  int64_t width = 0;
  double epsilon = 1e-5;
  Numbers normalized = {}, inverse_deviation = {};
  Numbers Forward(const Numbers& input);
  Numbers Backward(const Numbers& dy);
};

// softmax(q k^T / sqrt(depth)) v of each head, where a place sees itself and those before it;
// operands [batch, time, heads, depth].
struct CausalAttentionLayer {
  int64_t batch = 0, time = 0, heads = 0, depth = 0;
  Numbers q = {}, k = {}, v = {}, weights = {};  // weights [batch, heads, time, time]
  Numbers Forward(Numbers query, Numbers key, Numbers value);
  struct Gradients {
    Numbers q, k, v;
  };
  Gradients Backward(const Numbers& dy) const;
};

// Rows of weight [rows, width].
struct EmbeddingLayer {
  Parameter* weight = nullptr;
  int64_t width = 0;
  std::vector<int> indices = {};
  Numbers Forward(const std::vector<int>& input);
  void Backward(const Numbers& dy);
};

// The mean of -log softmax(logits [rows, classes])[label].
struct CrossEntropyLayer {
  int64_t classes = 0;
  Numbers probabilities = {};
  std::vector<int> labels = {};
  double Forward(const Numbers& logits, const std::vector<int>& label);
  Numbers Backward() const;
};

Numbers Sum(const Numbers& a, const Numbers& b);

// ---- Updates from the gradients, which are zeroed ----

struct MomentumOptions {
  double lr = 0, momentum = 0.9;
};
void UpdateWithMomentum(const MomentumOptions& options, Parameters& parameters);

// Kingma and Ba, arXiv 1412.6980, with the decoupled weight decay of arXiv 1711.05101; `step`
// counts from 1.
struct AdamOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};
void UpdateWithAdam(const AdamOptions& options, int64_t step, Parameters& parameters);

}  // namespace braid::reference
