#include "api/optimizers.h"

namespace braid {
namespace {

// Of Adam and AdamW.
template <class Fields>
Attrs AdamAttrs(const Fields& adam, bool decoupled) {
  return Attrs{{"beta1", adam.beta1},    {"beta2", adam.beta2},
               {"decoupled", decoupled}, {"epsilon", adam.epsilon},
               {"lazy", adam.lazy},      {"weight_decay", adam.weight_decay}};
}

}  // namespace

OptimizerSpec::OptimizerSpec(const Sgd& sgd) : lr_(sgd.lr) {
  if (sgd.momentum == 0) {
    update_ = "sgd_update";
    attrs_ = Attrs{{"weight_decay", sgd.weight_decay}};
  } else {
    update_ = "momentum_update";
    attrs_ = Attrs{
        {"momentum", sgd.momentum}, {"nesterov", sgd.nesterov}, {"weight_decay", sgd.weight_decay}};
  }
}

OptimizerSpec::OptimizerSpec(const Adam& adam)
    : update_("adam_update"), attrs_(AdamAttrs(adam, /*decoupled=*/false)), lr_(adam.lr) {}

OptimizerSpec::OptimizerSpec(const AdamW& adamw)
    : update_("adam_update"), attrs_(AdamAttrs(adamw, /*decoupled=*/true)), lr_(adamw.lr) {}

OptimizerSpec::OptimizerSpec(const RmsProp& rmsprop)
    : update_("rmsprop"),
      attrs_({{"alpha", rmsprop.alpha},
              {"epsilon", rmsprop.epsilon},
              {"weight_decay", rmsprop.weight_decay}}),
      lr_(rmsprop.lr) {
  // An operator for each set of states.
  if (rmsprop.centered) update_ += "_centered";
  if (rmsprop.momentum != 0) {
    update_ += "_momentum";
    attrs_.Set("momentum", rmsprop.momentum);
  }
  update_ += "_update";
}

OptimizerSpec::OptimizerSpec(const Adagrad& adagrad)
    : update_("adagrad_update"),
      attrs_({{"epsilon", adagrad.epsilon},
              {"initial", adagrad.initial_sum},
              {"lr_decay", adagrad.lr_decay},
              {"weight_decay", adagrad.weight_decay}}),
      lr_(adagrad.lr) {}

OptimizerSpec::OptimizerSpec(const Lars& lars)
    : update_("lars_update"),
      attrs_({{"epsilon", lars.epsilon},
              {"momentum", lars.momentum},
              {"trust", lars.trust},
              {"weight_decay", lars.weight_decay}}),
      lr_(lars.lr) {}

OptimizerSpec::OptimizerSpec(const Lamb& lamb)
    : update_("lamb_update"),
      attrs_({{"beta1", lamb.beta1},
              {"beta2", lamb.beta2},
              {"epsilon", lamb.epsilon},
              {"weight_decay", lamb.weight_decay}}),
      lr_(lamb.lr) {}

OptimizerSpec::OptimizerSpec(const Adafactor& adafactor)
    : update_("adafactor"),
      attrs_({{"beta2_decay", adafactor.beta2_decay},
              {"clip", adafactor.clip},
              {"epsilon", adafactor.epsilon},
              {"epsilon_scale", adafactor.epsilon_scale},
              {"weight_decay", adafactor.weight_decay}}),
      lr_(adafactor.lr) {}

}  // namespace braid
