#include "trainer/module_state.hpp"

#include <cmath>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/trainer/byte_model.hpp"
#include "tests/trainer/torch_rounds.hpp"
#include "tests/trainer/two_layers.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;
using testing::adamw_with_groups;
using ::testing::HasSubstr;
using testing::mean_gradient_of;
using testing::two_layers;
namespace optim = torch::optim;

using hypers = std::map<std::string, double>;

learner_config configuration(const std::string& optimizer, const hypers& set = {}) {
  learner_config c;
  c.settles = true;
  c.model = "mlp";
  c.layers = 1;
  c.width = 19; // not a multiple of the width of a vector register
  c.context = 5;
  c.optimizer = identity_with(optimizer, set);
  c.optimizer.weight_decay = 0.01;
  c.device = "cpu";
  return c;
}

std::unique_ptr<optim::Optimizer> optimizer_for(const learner_config& c, const torch::nn::Module& m,
                                                double lr = 1e-2) {
  return make_optimizer(c.optimizer, lr, m.parameters());
}

torch::Tensor windows(std::uint64_t seed, const learner_config& c) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randint(0, 256, {7, c.context + 1}, generator, torch::kInt64);
}

std::vector<float> all_of(const torch::nn::Module& module) {
  std::vector<float> values;
  for (const auto& p : module.parameters()) {
    auto flat = p.detach().contiguous();
    values.insert(values.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return values;
}

const std::vector<std::pair<std::string, hypers>> optimizers{
  {"sgd", {}},
  {"sgd", {{"momentum", 0.9}}},
  {"sgd", {{"momentum", 0.9}, {"nesterov", 1}}},
  {"adam", {}},
  {"adam", {{"amsgrad", 1}}},
  {"adamw", {}},
  {"adamw", {{"amsgrad", 1}, {"beta2", 0.9}}},
  {"adagrad", {}},
  {"rmsprop", {}},
  {"rmsprop", {{"momentum", 0.9}}},
  {"rmsprop", {{"momentum", 0.5}, {"centered", 1}}},
  {"rmsprop", {{"centered", 1}}},
  {"sgdw", {{"momentum", 0.9}, {"dampening", 0.5}}},
  {"lamb", {}},
  {"lars", {}},
  {"lion", {}},
  {"adafactor", {}},
  {"muon", {}}};

// -- the same state as in waggle train ------------------------------------------------------------

TEST(ModuleState, IsTheStateOfTheSameModelInWaggleTrain) {
  for (const auto& [name, set] : optimizers) {
    auto config = configuration(name, set);
    auto ours = make_torch_learner(config);
    auto model = make_byte_model(config);
    module_state theirs{*model, optimizer_for(config, *model), rate_owner::optimizer};
    EXPECT_EQ((*ours)->tensors().tensors(), theirs.table().tensors());
    EXPECT_EQ((*ours)->schema(), schema_of(theirs.table(), theirs.identity(), "")) << name;
  }
  auto config = configuration("adamw");
  auto model = make_byte_model(config);
  auto other = config;
  other.optimizer.weight_decay = 0.02;
  module_state state{*model, optimizer_for(other, *model), rate_owner::optimizer};
  auto ours = make_torch_learner(config);
  EXPECT_NE((*ours)->schema(), schema_of(state.table(), state.identity(), ""));
}

/// Runs `work` in another thread, with a learner whose calls this thread executes on `state`.
void with_learner(module_state& state, const std::function<void(learner&)>& work) {
  auto port =
    std::make_shared<loop_port>(state.table(), schema_of(state.table(), state.identity(), ""));
  auto learns = make_loop_learner(port);
  auto done = std::async(std::launch::async, [&] { work(*learns); });
  auto end = std::chrono::steady_clock::now() + 60s;
  port->serve(state, 5ms, [&] {
    return done.wait_for(0s) == std::future_status::ready || std::chrono::steady_clock::now() > end;
  });
  port->close();
  done.get();
}

class ModuleStateIn : public ::testing::TestWithParam<update_place> {};

INSTANTIATE_TEST_SUITE_P(Places, ModuleStateIn,
                         ::testing::Values(update_place::module, update_place::host_memory),
                         [](const auto& info) {
                           return info.param == update_place::module ? "Module" : "HostMemory";
                         });

TEST_P(ModuleStateIn, ExchangesStatesWithWaggleTrainAndFollowsTheSameTrajectory) {
  for (const auto& [name, set] : optimizers) {
    auto config = configuration(name, set);
    auto ours = std::move(*make_torch_learner(config));
    auto train = [&](learner& with, int steps) {
      for (int i = 0; i < steps; ++i) {
        ours->accumulate();
        auto gradient = mean_gradient_of(*ours);
        ours->apply(gradient, 1e-2);
        if (&with != ours.get())
          with.apply(gradient, 1e-2);
      }
    };
    train(*ours, 3);
    config.init_seed = 99;
    auto model = make_byte_model(config);
    module_state theirs{
      *model, optimizer_for(config, *model), rate_owner::optimizer, {}, GetParam()};
    with_learner(theirs, [&](learner& loop) {
      auto loaded = testing::load_state(loop, testing::save_state(*ours));
      ASSERT_TRUE(loaded) << loaded.error().detail;
      EXPECT_EQ(testing::save_state(loop), testing::save_state(*ours)) << name;
      EXPECT_EQ(loop.rounding() == ours->rounding(), testing::torch_rounds_once()) << name;
      if (!testing::torch_rounds_once())
        return;
      train(loop, 20);
      EXPECT_EQ(loop.parameters_digest(), ours->parameters_digest()) << name;
      EXPECT_EQ(loop.optimizer_steps(), 23u);
      ASSERT_TRUE(testing::load_state(*ours, testing::save_state(loop)));
      EXPECT_EQ(testing::save_state(loop), testing::save_state(*ours)) << name;
    });
    std::vector<float> values(theirs.table().parameter_count());
    for (std::size_t i = 0; i < model->parameters().size(); ++i)
      theirs.read_tensor(
        i, std::span{values}.subspan(theirs.table().offset(i), theirs.table()[i].elements()));
    EXPECT_EQ(all_of(*model), values) << name << ": the module follows";
  }
}

TEST(ModuleState, InHostMemoryItContinuesAnOptimizerThatHasStepped) {
  for (const auto& [name, set] : optimizers) {
    auto config = configuration(name, set);
    auto plain = make_byte_model(config);
    auto ours = make_byte_model(config);
    auto own = optimizer_for(config, *plain);
    auto given = optimizer_for(config, *ours);
    for (int i = 0; i < 3; ++i) {
      for (auto& [model, steps] : {std::pair{plain, own.get()}, std::pair{ours, given.get()}}) {
        steps->zero_grad();
        loss_of(*model, windows(i, config)).backward();
        if (i < 2) // this one has made fewer steps than the others
          model->parameters()[0].mutable_grad().reset();
        steps->step();
      }
    }
    module_state state{
      *ours, std::move(given), rate_owner::optimizer, {}, update_place::host_memory};
    EXPECT_TRUE(state.inner().state().empty()) << "the statistics are in host memory";
    for (int i = 3; i < 6; ++i) {
      own->zero_grad();
      loss_of(*plain, windows(i, config)).backward();
      own->step();
      state.inner().zero_grad();
      loss_of(*ours, windows(i, config)).backward();
      state.step(0); // the gradient is where the loop left it
      ASSERT_EQ(all_of(*ours), all_of(*plain)) << name << ", step " << i;
    }
    EXPECT_TRUE(state.inner().state().empty());
  }
}

TEST(ModuleState, InHostMemoryItHasTheParameterGroupsAndTheirRates) {
  two_layers plain;
  two_layers ours;
  {
    torch::NoGradGuard guard;
    for (std::size_t i = 0; i < plain.parameters().size(); ++i)
      ours.parameters()[i].copy_(plain.parameters()[i]);
  }
  auto own = adamw_with_groups(plain, 0.1, 0);
  module_state state{
    ours, adamw_with_groups(ours, 0.1, 0), rate_owner::optimizer, {}, update_place::host_memory};
  EXPECT_FALSE(state.identity().decay_vectors);
  for (int i = 0; i < 4; ++i) {
    for (auto* optimizer : {own.get(), &state.inner()})
      optimizer->param_groups()[1].options().set_lr(1e-2 * i);
    for (auto* net : {&plain, &ours}) {
      net->zero_grad();
      net->second->forward(net->first->forward(torch::ones({1, 3}))).pow(2).sum().backward();
    }
    own->step();
    state.step(0);
    state.check_unchanged(ours);
    ASSERT_EQ(all_of(ours), all_of(plain)) << i;
  }
}

// As the optimizer of a plain loop: a gradient of zeros would move a parameter that has momentum.
TEST(ModuleState, InHostMemoryAParameterWithoutAGradientIsLeftOutOfALocalStep) {
  two_layers m;
  module_state state{m,
                     std::make_unique<optim::SGD>(m.parameters(), optim::SGDOptions(1).momentum(1)),
                     rate_owner::optimizer,
                     {},
                     update_place::host_memory};
  m.second->forward(m.first->forward(torch::ones({1, 3}))).sum().backward();
  state.step(0);
  auto before = m.second->bias.detach().clone();
  state.inner().zero_grad();
  m.first->forward(torch::ones({1, 3})).sum().backward();
  m.second->bias.mutable_grad().reset();
  state.step(0);
  EXPECT_TRUE(torch::equal(m.second->bias.detach(), before));
}

TEST(ModuleState, BesidePassesTheModuleChangesOnlyWhenItIsRefreshed) {
  two_layers m;
  module_state state{m,
                     std::make_unique<optim::SGD>(m.parameters(), 1.0),
                     rate_owner::optimizer,
                     {},
                     update_place::beside_passes};
  auto before = all_of(m);
  std::vector<float> gradient(state.table().parameter_count(), 0.5F);
  state.master()->apply(gradient, 0);
  EXPECT_EQ(all_of(m), before);
  state.refresh();
  EXPECT_EQ(all_of(m)[0], before[0] - 0.5F);
  EXPECT_THAT(gradient, ::testing::Each(0.5F));
  module_state in_turn{m, std::make_unique<optim::SGD>(m.parameters(), 1.0), rate_owner::optimizer};
  EXPECT_EQ(in_turn.master(), nullptr);
}

TEST(ModuleState, StatisticsBeforeTheFirstStepAreZerosAndLoadingThemChangesNothing) {
  auto config = configuration("sgd", {{"momentum", 0.9}});
  auto model = make_byte_model(config);
  module_state state{*model, optimizer_for(config, *model), rate_owner::optimizer};
  std::vector<float> values(state.table()[state.table().size() - 1].elements(), 1.0F);
  state.read_tensor(state.table().size() - 1, values);
  EXPECT_THAT(values, ::testing::Each(0.0F));
  EXPECT_TRUE(state.inner().state().empty());
}

// -- a swarm of one -------------------------------------------------------------------------------

TEST_P(ModuleStateIn, ASwarmOfOneIsBitByBitThePlainLoop) {
  for (const auto& [name, set] : optimizers) {
    auto config = configuration(name, set);
    constexpr int steps = 60;
    auto plain = make_byte_model(config);
    auto plain_optimizer = optimizer_for(config, *plain);
    auto alone = make_byte_model(config);
    module_state state{
      *alone, optimizer_for(config, *alone), rate_owner::optimizer, {}, GetParam()};
    auto port = std::make_shared<loop_port>(state.table(), digest{});
    auto worker = std::async(std::launch::async, [port] {
      auto learns = make_loop_learner(port);
      for (int i = 0; i < steps; ++i) {
        learns->accumulate();
        learns->apply(mean_gradient_of(*learns), 0.5); // the loop's optimizer has its own rate
      }
    });
    for (int i = 0; i < steps; ++i) {
      plain_optimizer->zero_grad();
      loss_of(*plain, windows(i, config)).backward();
      plain_optimizer->step();
      state.inner().zero_grad();
      auto loss = loss_of(*alone, windows(i, config));
      loss.backward();
      auto outcome = port->offer(state, state.gradient(), {loss.item<double>(), 7, true},
                                 [&] { return worker.wait_for(0s) == std::future_status::ready; });
      ASSERT_EQ(outcome, i + 1 < steps ? step_outcome::stepped : step_outcome::finished);
      ASSERT_EQ(all_of(*alone), all_of(*plain)) << name << ", step " << i;
    }
    port->close();
    worker.get();
  }
}

TEST_P(ModuleStateIn, UsesTheRunsLearningRateIfTheRunOwnsIt) {
  auto config = configuration("sgd");
  auto model = make_byte_model(config);
  module_state state{*model, optimizer_for(config, *model), rate_owner::run, {}, GetParam()};
  std::vector<float> gradient(state.table().parameter_count(), 1.0F);
  state.apply(gradient, 0.125);
  EXPECT_EQ(state.learning_rate(), 0.125);
}

/// SGD with another rate for each layer of `m`.
std::unique_ptr<optim::Optimizer> sgd_with_rates(two_layers& m, double of_first, double of_second) {
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(m.first->parameters(), std::make_unique<optim::SGDOptions>(of_first));
  groups.emplace_back(m.second->parameters(), std::make_unique<optim::SGDOptions>(of_second));
  return std::make_unique<optim::SGD>(groups, optim::SGDOptions(of_first));
}

TEST_P(ModuleStateIn, GroupsKeepTheirRatioToTheFirstOneIfTheRunOwnsTheRate) {
  two_layers m;
  auto before = all_of(m);
  module_state state{m, sgd_with_rates(m, 0.5, 0.25), rate_owner::run, {}, GetParam()};
  std::vector<float> gradient(state.table().parameter_count(), 1.0F);
  for (double lr : {0.125, 0.0, 1.0}) {
    state.apply(gradient, lr);
    EXPECT_EQ(state.inner().param_groups()[0].options().get_lr(), lr);
    EXPECT_EQ(state.inner().param_groups()[1].options().get_lr(), lr / 2);
  }
  auto after = all_of(m);
  EXPECT_FLOAT_EQ(before.front() - after.front(), 1.125F);
  EXPECT_FLOAT_EQ(before.back() - after.back(), 1.125F / 2);
}

TEST(ModuleState, TheRatiosOfTheGroupsRatesAreForTheAgreement) {
  two_layers m;
  auto ratios = [&](std::unique_ptr<optim::Optimizer> of,
                    rate_owner owner = rate_owner::optimizer) {
    return module_state{m, std::move(of), owner}.rate_ratios();
  };
  EXPECT_EQ(ratios(sgd_with_rates(m, 0.1, 0.1)), "") << "the first one's rate says it all";
  EXPECT_EQ(ratios(adamw_with_groups(m, 0.1, 0)), "");
  EXPECT_EQ(ratios(sgd_with_rates(m, 0.3, 0.03)), "1 for 2, 0.1 for 2");
  EXPECT_EQ(ratios(sgd_with_rates(m, 0.1, 0.01)), "1 for 2, 0.1 for 2");
  EXPECT_NE(ratios(sgd_with_rates(m, 0.1, 0.02)), ratios(sgd_with_rates(m, 0.1, 0.01)));
  EXPECT_EQ(ratios(sgd_with_rates(m, 0, 0.02)), "0 for 2, 0.02 for 2");
  EXPECT_THROW(ratios(sgd_with_rates(m, 0, 0.02), rate_owner::run), std::invalid_argument);
}

// -- refusals -------------------------------------------------------------------------------------

std::string refusal(torch::nn::Module& module, std::unique_ptr<optim::Optimizer> optimizer) {
  try {
    module_state state{module, std::move(optimizer), rate_owner::optimizer};
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return {};
}

TEST(ModuleState, UnsupportedOptimizersAreRefusedWithTheNamesOfTheSupportedOnes) {
  two_layers m;
  EXPECT_THAT(refusal(m, std::make_unique<optim::LBFGS>(m.parameters())),
              HasSubstr("SGD, Adam, AdamW, Adagrad and RMSprop"));
  EXPECT_THAT(refusal(m, std::make_unique<optim::Adagrad>(m.parameters(),
                                                          optim::AdagradOptions(1).lr_decay(0.1))),
              HasSubstr("lr_decay"));
  EXPECT_THAT(
    refusal(m, std::make_unique<optim::Adagrad>(
                 m.parameters(), optim::AdagradOptions(1).initial_accumulator_value(0.1))),
    HasSubstr("initial_accumulator_value"));
  EXPECT_THAT(refusal(m, std::make_unique<optim::SGD>(
                           m.parameters(), optim::SGDOptions(1).momentum(0.5).dampening(0.5))),
              HasSubstr("dampening"));
  EXPECT_THAT(refusal(m, std::make_unique<optim::SGD>(m.first->parameters(), 0.1)),
              HasSubstr("second.weight"));
  EXPECT_THAT(refusal(*m.first, std::make_unique<optim::SGD>(m.parameters(), 0.1)),
              HasSubstr("9 values"));
  m.second->to(torch::kDouble);
  EXPECT_THAT(refusal(m, std::make_unique<optim::SGD>(m.parameters(), 0.1)),
              ::testing::AllOf(HasSubstr("second.weight is of type Double"),
                               HasSubstr("call to(torch::kFloat32) on the module")));
}

TEST(ModuleState, GroupsMayLeaveVectorsOutOfTheWeightDecay) {
  two_layers m;
  module_state state{m, adamw_with_groups(m, 0.1, 0), rate_owner::optimizer};
  EXPECT_EQ(state.identity().weight_decay, 0.1);
  EXPECT_FALSE(state.identity().decay_vectors);
  module_state equal{m, adamw_with_groups(m, 0.1, 0.1), rate_owner::optimizer};
  EXPECT_TRUE(equal.identity().decay_vectors);
  EXPECT_NE(schema_of(equal.table(), equal.identity(), ""),
            schema_of(state.table(), state.identity(), ""));
  EXPECT_THAT(refusal(m, adamw_with_groups(m, 0, 0.1)), HasSubstr("weight decays"));
  EXPECT_THAT(refusal(m, adamw_with_groups(m, 0.1, 0.2)), HasSubstr("weight decays"));
}

TEST(ModuleState, FrozenAndEmptyParametersAreLeftOutAndTiedOnesCountedAndSteppedOnce) {
  two_layers m;
  m.first->bias.set_requires_grad(false);
  m.second->weight = m.second->register_parameter("tied", m.first->weight);
  auto empty = m.second->register_parameter("empty", torch::zeros({0, 2}));
  std::vector<torch::Tensor> trained{empty, m.first->weight, m.first->weight, m.second->bias};
  for (auto& item : m.second->named_parameters())
    if (item.key() == "weight")
      trained.push_back(item.value());
  module_state state{m, std::make_unique<optim::SGD>(trained, 1.0), rate_owner::optimizer};
  std::vector<std::string> names;
  for (const auto& t : state.table().tensors())
    names.push_back(t.name);
  EXPECT_THAT(names, ::testing::ElementsAre("first.weight", "second.weight", "second.bias",
                                            std::string{left_out_name}));
  auto before = m.first->weight.detach().clone();
  state.apply(std::vector<float>(state.table().parameter_count(), 1.0F), 0);
  EXPECT_TRUE(torch::equal(m.first->weight.detach(), before - 1));
}

TEST(ModuleState, ParametersThatTheLossDoesNotReachHaveNoGradient) {
  two_layers m;
  module_state state{m, std::make_unique<optim::SGD>(m.parameters(), 0.1), rate_owner::optimizer};
  m.first->forward(torch::ones({1, 3})).sum().backward();
  auto gradient = state.gradient();
  EXPECT_EQ(gradient.front().values, m.first->weight.grad().data_ptr<float>()) << "no copy";
  EXPECT_EQ(gradient.front().values[0], 1.0F);
  EXPECT_EQ(gradient[gradient.size() - 2].values, nullptr);
  auto terms = update_terms::read({gradient.back().values, gradient.back().count},
                                  m.parameters().size(), state.table().numbers());
  EXPECT_THAT(terms.present, ::testing::ElementsAre(true, true, false, false));
  EXPECT_EQ(terms.number(3, 0), 0.1) << "the rate that the loop wishes for";
  EXPECT_TRUE(state.gradient_is_finite());
  m.first->bias.mutable_grad().fill_(std::nanf(""));
  (void)state.gradient();
  EXPECT_FALSE(state.gradient_is_finite());
}

/// A linear layer, a normalization with running statistics, a constant mask.
struct normalized_net : torch::nn::Module {
  normalized_net() {
    linear = register_module("linear", torch::nn::Linear(3, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    register_buffer("mask", torch::full({2}, -INFINITY));
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(linear->forward(x)); }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

std::unique_ptr<optim::Optimizer> plain_sgd(torch::nn::Module& net) {
  return std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{0.1}.momentum(0.9));
}

std::vector<std::string> names_of(const state_table& table, state_tensor::kind what) {
  std::vector<std::string> names;
  for (const auto& tensor : table.tensors())
    if (tensor.what == what)
      names.push_back(tensor.name);
  return names;
}

TEST(ModuleState, WhatPassesChangeAndExtraTensorsAreBuffers) {
  normalized_net net;
  auto teacher = torch::full({2, 2}, 0.5);
  module_state state{net, plain_sgd(net), rate_owner::optimizer, {{"teacher", teacher}}};
  EXPECT_THAT(names_of(state.table(), state_tensor::kind::buffer),
              ::testing::ElementsAre("norm.running_mean", "norm.running_var", "teacher"));
  EXPECT_THAT(names_of(state.table(), state_tensor::kind::counter),
              ::testing::ElementsAre("norm.num_batches_tracked"));
  EXPECT_EQ(state.table().buffer_count(), 8U + exact_values);

  net.forward(torch::randn({16, 3})).sum().backward();
  auto offered = state.gradient();
  ASSERT_EQ(offered.size(), net.parameters().size() + 5);
  EXPECT_TRUE(state.gradient_is_finite()) << "the mask is a constant, and not part of the state";
  EXPECT_EQ(offered[offered.size() - 5].values[0], net.norm->running_mean[0].item<float>());
  EXPECT_EQ(offered[offered.size() - 3].values[0], 0.5F);
  EXPECT_EQ(offered[offered.size() - 2].values[0], 1) << "one batch";

  auto last = state.table().size() - 2;
  state.write_tensor(last, std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(teacher[1][1].item<float>(), 4);
  state.write_tensor(last - 2, std::vector<float>{7, 8});
  EXPECT_EQ(net.norm->running_mean[1].item<float>(), 8);
  std::vector<float> read(2);
  state.read_tensor(last - 2, read);
  EXPECT_EQ(read, (std::vector<float>{7, 8}));
}

TEST(ModuleState, RefusesExtraTensorsThatItCannotAverage) {
  normalized_net net;
  auto refusal = [&](const std::string& name, const torch::Tensor& tensor) -> std::string {
    try {
      module_state state{net, plain_sgd(net), rate_owner::optimizer, {{name, tensor}}};
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_EQ(refusal("teacher", torch::zeros({2})), "");
  EXPECT_THAT(refusal("norm.running_var", torch::zeros({2})), HasSubstr("rename it"));
  EXPECT_THAT(refusal("again", net.norm->running_mean), HasSubstr("leave it out"));
  EXPECT_THAT(refusal("mask", torch::full({2}, -INFINITY)), HasSubstr("not finite"));
  EXPECT_THAT(refusal("count", torch::zeros({2}, torch::kInt64)),
              ::testing::AllOf(HasSubstr("only float32"), HasSubstr("or leave it out")));
  EXPECT_THAT(refusal("empty", torch::Tensor{}), HasSubstr("has no values"));
  EXPECT_THAT(refusal("w", torch::zeros({2}).set_requires_grad(true)),
              HasSubstr("make it a parameter"));
}

TEST(ModuleState, ANormalizationWithTwoNamesIsMergedOnce) {
  normalized_net net;
  net.register_module("alias", net.norm.ptr());
  module_state state{net, plain_sgd(net), rate_owner::optimizer};
  EXPECT_EQ(state.table().buffer_count(), 4U + exact_values);
}

// Otherwise no later pass would be finite: 0.9 NaN + 0.1 x is NaN.
TEST(ModuleState, ABatchThatIsNotFiniteLeavesTheBuffersAsTheyWere) {
  normalized_net net;
  module_state state{net, plain_sgd(net), rate_owner::optimizer};
  net.forward(torch::randn({16, 3}));
  state.gradient();
  auto before = net.norm->running_var.clone();
  net.forward(torch::full({16, 3}, INFINITY));
  ASSERT_FALSE(std::isfinite(net.norm->running_var.sum().item<double>()));
  auto offered = state.gradient();
  EXPECT_TRUE(net.norm->running_var.equal(before));
  EXPECT_EQ(offered[offered.size() - 3].values[0], before[0].item<float>());
}

TEST(ModuleState, ABufferThatChangesItsShapeEndsTheLoopWithItsName) {
  normalized_net net;
  auto teacher = torch::zeros({2});
  module_state state{net, plain_sgd(net), rate_owner::optimizer, {{"teacher", teacher}}};
  state.check_unchanged(net);
  teacher.resize_({3});
  EXPECT_THROW(state.check_unchanged(net), std::runtime_error);
}

} // namespace
} // namespace waggle
