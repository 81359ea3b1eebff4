// Loops that change something after their first step, or have what no pass uses: alone they are the
// plain loop, bit by bit.

#include <cmath>

#include <torch/script.h>

#include "runtime/training/learner.hpp"
#include "runtime/training/state_schema.hpp"
#include "runtime/training/update_terms.hpp"
#include "tests/trainer/image_folder.hpp"
#include "tests/trainer/swarm_of_one.hpp"
#include "tests/trainer/two_layers.hpp"
#include "trainer/module_state.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {
namespace {

using testing::swarm_of_one;
namespace optim = torch::optim;

/// Has what passes change beside running statistics, a layer that no pass uses, and one that is
/// used late.
struct changing : torch::nn::Module {
  changing()
    : body(register_module("body", torch::nn::Linear{3, 2})),
      norm(register_module("norm", torch::nn::BatchNorm1d{2})),
      unused(register_module("unused", torch::nn::Linear{3, 2})),
      late(register_module("late", torch::nn::Linear{3, 2})),
      empty(register_parameter("empty", torch::empty({0}))),
      frozen(register_parameter("frozen", torch::ones({2}), false)),
      codebook(register_buffer("codebook", torch::zeros({4}))),
      exact(register_buffer("exact", torch::full({1}, 0.1, torch::kFloat64))),
      seen(register_buffer("seen", torch::zeros({}, torch::kInt64))),
      mask(register_buffer("mask", torch::full({2}, -INFINITY))) {
    torch::NoGradGuard guard;
    for (auto& p : parameters())
      if (p.numel() > 0 && p.requires_grad())
        p.fill_(0.25);
  }

  torch::Tensor loss(std::uint64_t step) {
    auto x = torch::rand({4, 3}, at::detail::createCPUGenerator(step));
    {
      torch::NoGradGuard guard;
      codebook[static_cast<std::int64_t>(step) % 4] += x.mean();
      exact.div_(1.1).add_(1e-9);
      seen.add_(1);
    }
    auto out = norm(body(x));
    if (step > 8)
      out = out + late(x);
    return (out - x.narrow(1, 0, 2)).pow(2).mean();
  }

  torch::nn::Linear body;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear unused;
  torch::nn::Linear late;
  torch::Tensor empty, frozen, codebook, exact, seen, mask;
};

/// Sets all numbers of the first group by hand.
void change(optim::Optimizer& optimizer, std::uint64_t step) {
  auto t = static_cast<double>(step);
  auto& options = optimizer.param_groups().front().options();
  options.set_lr(0.02 * (0.6 + 0.4 * std::cos(t / 3)));
  if (auto* adamw = dynamic_cast<optim::AdamWOptions*>(&options))
    adamw->betas({0.9 - 0.01 * t, 0.99}).weight_decay(0.1 / (1 + t)).eps(1e-8 * (1 + t));
  if (auto* sgd = dynamic_cast<optim::SGDOptions*>(&options))
    sgd->momentum(0.9 - 0.01 * t).weight_decay(0.01 / (1 + t));
}

std::vector<torch::Tensor> trainable(changing& m) {
  std::vector<torch::Tensor> all;
  for (auto& p : m.parameters())
    if (p.requires_grad())
      all.push_back(p);
  return all;
}

bool equal(changing& a, changing& b) {
  auto same = [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(),
                      [](const auto& p, const auto& q) { return torch::equal(p, q); });
  };
  return same(a.parameters(), b.parameters()) && same(a.buffers(), b.buffers());
}

class ChangingLoop : public swarm_of_one {
protected:
  template <class MakeOptimizer>
  void expect_the_plain_loop(swarm_options o, MakeOptimizer make) {
    constexpr std::uint64_t steps = 16;
    changing plain;
    auto plain_optimizer = make(trainable(plain));
    for (std::uint64_t i = 0; i < steps; ++i) {
      plain_optimizer->zero_grad();
      plain.loss(i).backward();
      change(*plain_optimizer, i);
      plain_optimizer->step();
    }
    changing ours;
    {
      optimizer with{join(o), ours, make(trainable(ours))};
      for (std::uint64_t i = 0; i < steps; ++i) {
        with.zero_grad();
        auto loss = ours.loss(i);
        loss.backward();
        change(with.inner(), i);
        with.step(4, loss);
      }
      EXPECT_EQ(with.rate(), 0.02 * (0.6 + 0.4 * std::cos(15.0 / 3)));
    }
    EXPECT_TRUE(equal(ours, plain));
    EXPECT_EQ(ours.seen.item<std::int64_t>(), static_cast<std::int64_t>(steps));
  }
  static std::unique_ptr<optim::Optimizer> adamw(std::vector<torch::Tensor> parameters) {
    return std::make_unique<optim::AdamW>(std::move(parameters),
                                          optim::AdamWOptions(0.02).weight_decay(0.1));
  }
  static std::unique_ptr<optim::Optimizer> sgd(std::vector<torch::Tensor> parameters) {
    return std::make_unique<optim::SGD>(std::move(parameters),
                                        optim::SGDOptions(0.02).momentum(0.9));
  }
};

TEST_F(ChangingLoop, AloneIsThePlainLoop) {
  expect_the_plain_loop(options(), adamw);
}

TEST_F(ChangingLoop, WithMomentumAloneIsThePlainLoop) {
  expect_the_plain_loop(options(), sgd);
}

TEST_F(ChangingLoop, ThatStepsByItselfIsThePlainLoop) {
  auto o = options();
  o.strategy = "local-updates";
  expect_the_plain_loop(o, adamw);
}

TEST_F(ChangingLoop, WithTheOptimizerInHostMemoryIsThePlainLoop) {
  auto o = options();
  o.more["offload-optimizer"] = "true";
  expect_the_plain_loop(o, adamw);
}

TEST_F(ChangingLoop, AParameterThatIsUnfrozenLaterIsRefusedByName) {
  changing m;
  optimizer with{join(options()), m, sgd(trainable(m))};
  m.loss(0).backward();
  with.step(4, 1.0);
  m.frozen.set_requires_grad(true);
  try {
    with.step(4, 1.0);
    FAIL() << "it was not refused";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string{e.what()}.find("parameter frozen was added, or unfrozen"),
              std::string::npos)
      << e.what();
  }
}

TEST(ModuleState, WhereTheRunOwnsTheRateAllOtherNumbersOfTheLoopCount) {
  changing m;
  module_state state{m, std::make_unique<optim::SGD>(trainable(m), optim::SGDOptions(0.5)),
                     rate_owner::run};
  auto& options = state.inner().param_groups().front().options();
  static_cast<optim::SGDOptions&>(options).weight_decay(0.25);
  auto last = state.gradient().back();
  auto parameters = state.table().indices_of({state_tensor::kind::parameter}).size();
  auto terms = update_terms::read({last.values, last.count}, parameters, state.table().numbers());
  EXPECT_EQ(terms.number(0, 0), std::nullopt);
  EXPECT_EQ(std::ranges::count(terms.numbers, std::optional{0.25}),
            static_cast<std::ptrdiff_t>(parameters));
}

TEST(ModuleState, AFollowedScheduleIsStatedOnceOtherLoopsSetOtherRates) {
  changing m;
  module_state state{m, std::make_unique<optim::SGD>(trainable(m), optim::SGDOptions(0.5)),
                     rate_owner::optimizer};
  state.follow([](auto& of) { return std::make_unique<optim::StepLR>(of, 4, 0.5); }, nullptr);
  auto parameters = state.table().indices_of({state_tensor::kind::parameter}).size();
  auto stated = [&] {
    auto last = state.gradient().back();
    return update_terms::read({last.values, last.count}, parameters, state.table().numbers())
      .number(0, 0);
  };
  std::vector<float> gradient(state.table().value_count());
  auto update = [&](std::optional<double> rate) {
    update_terms terms{parameters, state.table().numbers()};
    for (std::size_t i = 0; i < parameters; ++i)
      terms.number(i, 0) = rate;
    state.settle(terms);
    state.apply(gradient, 0);
    EXPECT_EQ(state.rate_used(), rate.value_or(0.5));
    return state.surprise();
  };
  EXPECT_EQ(update(0.7), std::nullopt);
  EXPECT_EQ(update(0.7), std::nullopt);
  EXPECT_EQ(update(std::nullopt), std::nullopt) << "all that contributed follow";
  EXPECT_EQ(stated(), std::nullopt);
  EXPECT_THAT(update(0.7).value_or(""),
              ::testing::HasSubstr("follows a schedule that has the learning rate 0.5, and the "
                                   "peers made the last 3 updates with 0.7"));
  EXPECT_EQ(stated(), 0.5);
  EXPECT_EQ(update(0.7), std::nullopt) << "it is said once";
  EXPECT_EQ(stated(), 0.25) << "that of the next update";
}

// -- waggle train ---------------------------------------------------------------------------------

constexpr const char* with_unused = R"(
def forward(self, x):
    self.seen = self.seen + 1
    if int(self.seen) > 3:
        return torch.matmul(x.flatten(1), self.w) + self.late
    return torch.matmul(x.flatten(1), self.w)
)";

TEST(ChangingModule, ParametersThatNoPassUsesAreLeftOut) {
  image_folder images;
  learner_config c;
  c.model = (images.path / "net.pt").string();
  c.data = images.path.string();
  c.micro_batch = 20;
  c.device = "cpu";
  c.optimizer = identity_with("adamw", {});
  c.optimizer.weight_decay = 0.1;
  c.settles = true;
  {
    torch::manual_seed(7);
    torch::jit::Module module{"net"};
    auto add = [&](const char* name, torch::Tensor values) {
      module.register_parameter(name, values.requires_grad_(), false);
    };
    add("w", 0.1 * torch::randn({64, 10}));
    add("late", torch::full({10}, 0.5));
    add("unused", torch::full({4}, -0.4895));
    module.register_buffer("seen", torch::zeros({}, torch::kInt64));
    module.define(with_unused);
    module.save(c.model);
  }
  auto made = make_torch_learner(c);
  auto& model = **made;
  auto tensor = [&](std::string_view name) {
    const auto& all = model.tensors().tensors();
    auto at = std::ranges::find(all, name, &state_tensor::name) - all.begin();
    std::vector<float> values(all[static_cast<std::size_t>(at)].elements());
    model.read_tensor(static_cast<std::size_t>(at), values);
    return values;
  };
  auto vectors = vector_pool::make(4);
  constexpr int steps = 6;
  for (int i = 0; i < steps; ++i) {
    ASSERT_TRUE(model.accumulate().finite);
    auto mean = model.take_mean_vector(*vectors);
    ASSERT_EQ(mean.values->size(), model.gradient_count());
    auto terms =
      std::span{*mean.values}.last(static_cast<std::size_t>(model.tensors().term_count()));
    model.settle(terms);
    model.apply(std::span{*mean.values}.first(model.parameter_count()), 0.01);
    EXPECT_EQ(tensor("late") == std::vector<float>(10, 0.5F), i < 3) << i;
  }
  EXPECT_EQ(tensor("unused"), std::vector<float>(4, -0.4895F));
  EXPECT_EQ(tensor(left_out_name), (std::vector<float>{3, steps, 0})); // late, unused, w
  auto seen = tensor("seen");
  EXPECT_EQ(read_exact(std::span<const float>{seen}.first<exact_values>()), steps);
}

} // namespace
} // namespace waggle
