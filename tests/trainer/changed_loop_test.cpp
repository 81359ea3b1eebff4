// What a loop may not change after its optimizer was constructed.

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/two_layers.hpp"
#include "trainer/module_state.hpp"

namespace waggle {
namespace {

using testing::adamw_with_groups;
using ::testing::HasSubstr;
using testing::two_layers;
namespace optim = torch::optim;

// -- the module -----------------------------------------------------------------------------------

std::string change(const std::function<void(two_layers&)>& how) {
  two_layers m;
  module_state state{m, std::make_unique<optim::SGD>(m.parameters(), 0.1), rate_owner::optimizer};
  state.check_unchanged(m);
  how(m);
  try {
    state.check_unchanged(m);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return {};
}

TEST(ModuleState, AParameterThatChangedLaterIsNamed) {
  EXPECT_THAT(change([](two_layers& m) { m.register_module("third", torch::nn::Linear(1, 1)); }),
              HasSubstr("third.weight was added, or unfrozen"));
  EXPECT_THAT(change([](two_layers& m) { m.second->to(torch::kHalf); }),
              HasSubstr("second.weight became float16"));
  EXPECT_THAT(change([](two_layers& m) { m.second->bias.set_requires_grad(false); }),
              HasSubstr("second.bias was removed, frozen"));
  EXPECT_THAT(change([](two_layers& m) { m.first->bias.set_requires_grad(false); }),
              HasSubstr("second.weight took the place of first.bias"));
  EXPECT_THAT(change([](two_layers& m) {
                m.first->weight.set_data(torch::zeros({2, 3}));
              }),
              HasSubstr("first.weight changed its shape since"));
  EXPECT_THAT(change([](two_layers& m) { m.replace_module("second", torch::nn::Linear(3, 3)); }),
              HasSubstr("second.weight was replaced by another tensor since"));
  EXPECT_EQ(change([](two_layers& m) { m.first->weight.set_data(torch::zeros({3, 3})); }), "");
  EXPECT_EQ(change([](two_layers& m) { m.zero_grad(); }), "");
}

// -- the optimizer --------------------------------------------------------------------------------

template <class Options>
Options& options_of(optim::Optimizer& optimizer, std::size_t group) {
  return static_cast<Options&>(optimizer.param_groups().at(group).options());
}

std::string change_of_optimizer(const std::function<void(two_layers&, optim::Optimizer&)>& how) {
  two_layers m;
  module_state state{m, adamw_with_groups(m, 0.1, 0), rate_owner::optimizer};
  state.check_unchanged(m);
  how(m, state.inner());
  try {
    state.check_unchanged(m);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return {};
}

TEST(ModuleState, AnOptimizerThatChangedLaterIsRefusedWithWhatToDo) {
  using adamw = optim::AdamWOptions;
  struct {
    std::function<void(two_layers&, optim::Optimizer&)> change;
    std::string sentence;
  } const table[]{
    {[](two_layers&, optim::Optimizer& o) {
       o.add_param_group(std::vector<torch::Tensor>{torch::zeros({2, 2}).requires_grad_()});
     },
     "the number of the optimizer's parameter groups changed from 2 to 3 since"},
    {[](two_layers&, optim::Optimizer& o) { o.param_groups().pop_back(); }, "from 2 to 1 since"},
    {[](two_layers&, optim::Optimizer& o) { o.param_groups()[1].params().pop_back(); },
     "the tensors of the optimizer's parameter group 1 changed since"},
    {[](two_layers&, optim::Optimizer& o) {
       o.param_groups()[0].params()[1] = torch::zeros({3, 3}).requires_grad_();
     },
     "the tensors of the optimizer's parameter group 0 changed since"},
    {[](two_layers& m, optim::Optimizer& o) {
       o.param_groups()[0].params().push_back(m.first->bias);
     },
     "the tensors of the optimizer's parameter group 0 changed since"},
    {[](two_layers&, optim::Optimizer& o) { options_of<adamw>(o, 0).amsgrad(true); },
     "amsgrad of the optimizer's parameter group 0 changed since"},
  };
  for (const auto& row : table)
    EXPECT_THAT(
      change_of_optimizer(row.change),
      ::testing::AllOf(HasSubstr(row.sentence), HasSubstr("change it before, on all peers")))
      << row.sentence;
}

TEST(ModuleState, TheNumbersOfAGroupMayChange) {
  EXPECT_EQ(change_of_optimizer([](two_layers&, optim::Optimizer& o) {
              o.param_groups()[0].options().set_lr(0.5);
              options_of<optim::AdamWOptions>(o, 0).betas({0.5, 0.9}).weight_decay(0.2);
              options_of<optim::AdamWOptions>(o, 1).eps(1e-3);
              optim::StepLR{o, 1, 0.5}.step();
            }),
            "");
}

TEST(ModuleState, EverySwitchOfEveryOptimizerOfTorchIsWatched) {
  two_layers m;
  auto refusal_after = [&](auto optimizer, auto how) -> std::string {
    auto& inner = *optimizer;
    module_state state{m, std::move(optimizer), rate_owner::optimizer};
    how(inner);
    try {
      state.check_unchanged(m);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return {};
  };
  auto sgd = [&](auto how) {
    return refusal_after(std::make_unique<optim::SGD>(m.parameters(), optim::SGDOptions(0.1)),
                         [&](auto& o) { how(options_of<optim::SGDOptions>(o, 0)); });
  };
  EXPECT_THAT(sgd([](auto& o) { o.momentum(0.9); }), HasSubstr("momentum of")) << "a statistic";
  EXPECT_THAT(sgd([](auto& o) { o.nesterov(true); }), HasSubstr("nesterov of"));
  EXPECT_THAT(sgd([](auto& o) { o.dampening(0.5); }), HasSubstr("SGD with dampening"));
  EXPECT_EQ(sgd([](auto& o) { o.lr(0.5); }), "");
  auto rmsprop = [&](auto how) {
    return refusal_after(
      std::make_unique<optim::RMSprop>(m.parameters(), optim::RMSpropOptions(0.1)),
      [&](auto& o) { how(options_of<optim::RMSpropOptions>(o, 0)); });
  };
  EXPECT_EQ(rmsprop([](auto& o) { o.alpha(0.5); }), "");
  EXPECT_THAT(rmsprop([](auto& o) { o.centered(true); }), HasSubstr("centered of"));
  auto adagrad = [&](auto how) {
    return refusal_after(
      std::make_unique<optim::Adagrad>(m.parameters(), optim::AdagradOptions(0.1)),
      [&](auto& o) { how(options_of<optim::AdagradOptions>(o, 0)); });
  };
  EXPECT_EQ(adagrad([](auto& o) { o.eps(0.5); }), "");
  EXPECT_THAT(adagrad([](auto& o) { o.lr_decay(0.5); }), HasSubstr("Adagrad with lr_decay"));
}

} // namespace
} // namespace waggle
