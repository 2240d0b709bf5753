#include "tests/reference/models.h"

#include <utility>

namespace braid::reference {

Parameter* Model::Add(Parameters& to, const std::string& name) {
  Parameter& parameter = to[name];
  parameter.value = initial_(name);
  parameter.gradient.assign(parameter.value.size(), 0);
  return &parameter;
}

namespace {

class Mlp final : public Model {
 public:
  Mlp(const MlpShape& shape, const AdamOptions& adam, InitialValue initial)
      : Model(std::move(initial)), adam_(adam) {
    fc1_ = {Trained("fc1.weight"), Trained("fc1.bias"), shape.in, shape.hidden1};
    fc2_ = {Trained("fc2.weight"), Trained("fc2.bias"), shape.hidden1, shape.hidden2};
    out_ = {Trained("out.weight"), Trained("out.bias"), shape.hidden2, shape.classes};
    loss_.classes = shape.classes;
    relu1_.margin = relu2_.margin = &margin_;
  }

  double Train(const Batch& batch) override {
    const Numbers h1 = relu1_.Forward(fc1_.Forward(batch.images));
    const Numbers h2 = relu2_.Forward(fc2_.Forward(h1));
    const double loss = loss_.Forward(out_.Forward(h2), batch.labels);
    const Numbers d2 = relu2_.Backward(out_.Backward(loss_.Backward()));
    fc1_.Backward(relu1_.Backward(fc2_.Backward(d2)));
    UpdateWithAdam(adam_, ++step_, parameters_);
    return loss;
  }

 private:
  AdamOptions adam_;
  int64_t step_ = 0;
  LinearLayer fc1_, fc2_, out_;
  ReluLayer relu1_, relu2_;
  CrossEntropyLayer loss_;
};

class Cnn final : public Model {
 public:
  Cnn(const CnnShape& shape, const MomentumOptions& momentum, InitialValue initial)
      : Model(std::move(initial)), momentum_(momentum) {
    conv1_.weight = Trained("conv1.weight");
    conv1_.from = {shape.batch, shape.channels, shape.size, shape.size};
    conv1_.out = shape.features1;
    norm1_ = Norm("norm1", conv1_.to());
    pool_.from = conv1_.to();
    conv2_.weight = Trained("conv2.weight");
    conv2_.from = pool_.to();
    conv2_.out = shape.features2;
    conv2_.stride = 2;
    norm2_ = Norm("norm2", conv2_.to());
    depthwise_.weight = Trained("depthwise.weight");
    depthwise_.bias = Trained("depthwise.bias");
    depthwise_.from = conv2_.to();
    depthwise_.out = depthwise_.groups = shape.features2;
    mean_.from = depthwise_.to();
    out_ = {Trained("out.weight"), Trained("out.bias"), shape.features2, shape.classes};
    loss_.classes = shape.classes;
    relu1_.margin = relu2_.margin = relu3_.margin = pool_.margin = &margin_;
  }

  double Train(const Batch& batch) override {
    Numbers x = relu1_.Forward(norm1_.Forward(conv1_.Forward(batch.images)));
    x = relu2_.Forward(norm2_.Forward(conv2_.Forward(pool_.Forward(x))));
    x = mean_.Forward(relu3_.Forward(depthwise_.Forward(x)));
    const double loss = loss_.Forward(out_.Forward(x), batch.labels);
    Numbers d = mean_.Backward(out_.Backward(loss_.Backward()));
    d = depthwise_.Backward(relu3_.Backward(d));
    d = pool_.Backward(conv2_.Backward(norm2_.Backward(relu2_.Backward(d))));
    conv1_.Backward(norm1_.Backward(relu1_.Backward(d)));
    UpdateWithMomentum(momentum_, parameters_);
    return loss;
  }

 private:
  BatchNormLayer Norm(const std::string& name, const Images& images) {
    BatchNormLayer norm;
    norm.gamma = Trained(name + ".gamma");
    norm.beta = Trained(name + ".beta");
    norm.running_mean = Statistic(name + ".running_mean");
    norm.running_variance = Statistic(name + ".running_variance");
    norm.images = images;
    return norm;
  }

  MomentumOptions momentum_;
  ConvLayer conv1_, conv2_, depthwise_;
  BatchNormLayer norm1_, norm2_;
  ReluLayer relu1_, relu2_, relu3_;
  MaxPoolLayer pool_;
  GlobalMeanLayer mean_;
  LinearLayer out_;
  CrossEntropyLayer loss_;
};

class Gpt final : public Model {
 public:
  Gpt(const GptShape& shape, const AdamOptions& adam, InitialValue initial)
      : Model(std::move(initial)), shape_(shape), adam_(adam) {
    tokens_ = {Trained("tokens.weight"), shape.width};
    positions_ = {Trained("positions.weight"), shape.width};
    for (int64_t i = 0; i < shape.layers; ++i) {
      const std::string name = "h." + std::to_string(i);
      blocks_.push_back({.norm1 = Norm(name + ".norm1"),
                         .norm2 = Norm(name + ".norm2"),
                         .q = Linear(name + ".attn.q", shape.width, shape.width),
                         .k = Linear(name + ".attn.k", shape.width, shape.width),
                         .v = Linear(name + ".attn.v", shape.width, shape.width),
                         .attention_proj = Linear(name + ".attn.proj", shape.width, shape.width),
                         .fc = Linear(name + ".fc", shape.width, 4 * shape.width),
                         .proj = Linear(name + ".proj", 4 * shape.width, shape.width),
                         .attention = {.batch = shape.batch,
                                       .time = shape.time,
                                       .heads = shape.heads,
                                       .depth = shape.width / shape.heads},
                         .gelu = {}});
    }
    norm_ = Norm("norm");
    if (!shape.is_tied) head_ = {Trained("head.weight"), nullptr, shape.width, shape.vocabulary};
    loss_.classes = shape.vocabulary;
  }

  double Train(const Batch& batch) override {
    std::vector<int> places;
    for (int64_t i = 0; i < shape_.batch * shape_.time; ++i) {
      places.push_back(static_cast<int>(i % shape_.time));
    }
    Numbers x = Sum(tokens_.Forward(batch.tokens), positions_.Forward(places));
    for (Block& block : blocks_) x = block.Forward(x);
    const double loss = loss_.Forward(Logits(norm_.Forward(x)), batch.labels);
    Numbers d = norm_.Backward(LogitsBackward(loss_.Backward()));
    for (size_t i = blocks_.size(); i-- > 0;) d = blocks_[i].Backward(d);
    tokens_.Backward(d);
    positions_.Backward(d);
    UpdateWithAdam(adam_, ++step_, parameters_);
    return loss;
  }

 private:
  struct Block {
    LayerNormLayer norm1, norm2;
    LinearLayer q, k, v, attention_proj, fc, proj;
    CausalAttentionLayer attention;
    GeluLayer gelu;

    Numbers Forward(const Numbers& input) {
      const Numbers n = norm1.Forward(input);
      const Numbers mixed = attention.Forward(q.Forward(n), k.Forward(n), v.Forward(n));
      const Numbers x = Sum(input, attention_proj.Forward(mixed));
      return Sum(x, proj.Forward(gelu.Forward(fc.Forward(norm2.Forward(x)))));
    }

    Numbers Backward(const Numbers& dy) {
      const Numbers inner = gelu.Backward(proj.Backward(dy));
      const Numbers dx = Sum(dy, norm2.Backward(fc.Backward(inner)));
      const auto mixed = attention.Backward(attention_proj.Backward(dx));
      const Numbers dn = Sum(Sum(q.Backward(mixed.q), k.Backward(mixed.k)), v.Backward(mixed.v));
      return Sum(dx, norm1.Backward(dn));
    }
  };

  LayerNormLayer Norm(const std::string& name) {
    LayerNormLayer norm;
    norm.gamma = Trained(name + ".gamma");
    norm.beta = Trained(name + ".beta");
    norm.width = shape_.width;
    return norm;
  }
  LinearLayer Linear(const std::string& name, int64_t in, int64_t out) {
    return {Trained(name + ".weight"), Trained(name + ".bias"), in, out};
  }

  // x times the head, or times the transpose of the tokens' table [vocabulary, width].
  Numbers Logits(const Numbers& x) {
    if (!shape_.is_tied) return head_.Forward(x);
    last_ = x;
    const Numbers& table = tokens_.weight->value;
    const int64_t rows = shape_.batch * shape_.time, width = shape_.width;
    Numbers y(rows * shape_.vocabulary);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < shape_.vocabulary; ++t) {
        double& sum = y[r * shape_.vocabulary + t];
        for (int64_t i = 0; i < width; ++i) sum += x[r * width + i] * table[t * width + i];
      }
    }
    return y;
  }

  Numbers LogitsBackward(const Numbers& dy) {
    if (!shape_.is_tied) return head_.Backward(dy);
    const Numbers& table = tokens_.weight->value;
    const int64_t rows = shape_.batch * shape_.time, width = shape_.width;
    Numbers dx(last_.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < shape_.vocabulary; ++t) {
        const double d = dy[r * shape_.vocabulary + t];
        for (int64_t i = 0; i < width; ++i) {
          dx[r * width + i] += d * table[t * width + i];
          tokens_.weight->gradient[t * width + i] += d * last_[r * width + i];
        }
      }
    }
    return dx;
  }

  GptShape shape_;
  AdamOptions adam_;
  int64_t step_ = 0;
  EmbeddingLayer tokens_, positions_;
  std::vector<Block> blocks_;
  LayerNormLayer norm_;
  LinearLayer head_;
  CrossEntropyLayer loss_;
  Numbers last_;  // what the tied head multiplies
};

}  // namespace

std::unique_ptr<Model> MakeMlp(const MlpShape& shape, const AdamOptions& adam,
                               InitialValue initial) {
  return std::make_unique<Mlp>(shape, adam, std::move(initial));
}

std::unique_ptr<Model> MakeCnn(const CnnShape& shape, const MomentumOptions& momentum,
                               InitialValue initial) {
  return std::make_unique<Cnn>(shape, momentum, std::move(initial));
}

std::unique_ptr<Model> MakeGpt(const GptShape& shape, const AdamOptions& adam,
                               InitialValue initial) {
  return std::make_unique<Gpt>(shape, adam, std::move(initial));
}

}  // namespace braid::reference
