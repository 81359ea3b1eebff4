#include "trainer/rule_optimizer.hpp"

#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>
#include <span>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/state_schema.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "trainer/fused_sum.hpp"
#include "trainer/plain_loop.hpp"
#include "trainer/updated_tensors.hpp"

namespace waggle {

namespace {

using testing::mean_gradient_of;

using json = nlohmann::json;
using sizes = std::vector<std::uint64_t>;

state_table table_for(const std::vector<sizes>& shapes, const optimizer_identity& numbers) {
  std::vector<state_tensor> parameters;
  for (const auto& shape : shapes)
    parameters.push_back(
      {"p" + std::to_string(parameters.size()), shape, state_tensor::kind::parameter});
  return table_of(std::move(parameters), numbers);
}

torch::Tensor tensor_of(const json& values) {
  return torch::tensor(values.get<std::vector<double>>(), torch::kFloat64).to(torch::kFloat32);
}

const json& vectors() {
  static const auto all =
    json::parse(std::ifstream{WAGGLE_SOURCE_DIR "/tests/trainer/optimizer_vectors.json"});
  return all;
}

optimizer_identity numbers_of(const json& run) {
  auto numbers = identity_with(run["optimizer"].get<std::string>(),
                               run["numbers"].get<std::map<std::string, double>>());
  numbers.weight_decay = run["weight_decay"];
  numbers.decay_vectors = run["vectors_decay"];
  return numbers;
}

/// All statistics, one after another, in the order of the table.
torch::Tensor statistics_of(const updated_tensors& optimizer, const state_table& table) {
  std::vector<torch::Tensor> all{torch::empty({0})};
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].what == state_tensor::kind::parameter)
      continue;
    all.push_back(torch::empty({static_cast<std::int64_t>(table[i].elements())}));
    optimizer.read_tensor(i, {all.back().data_ptr<float>(), table[i].elements()});
  }
  return torch::cat(all);
}

/// The parameters of a run after each number of steps that the vectors contain, by our optimizer.
std::vector<torch::Tensor> steps_of(const json& run, const optimizer_identity& numbers) {
  auto shapes = vectors()["shapes"].get<std::vector<sizes>>();
  shapes.resize(run["tensors"]); // the first ones
  auto table = table_for(shapes, numbers);
  auto first = [&](const json& values) {
    return tensor_of(values).narrow(0, 0, static_cast<std::int64_t>(table.parameter_count()));
  };
  auto ours = first(vectors()["begin"]);
  auto optimizer = updated_tensors::of_flat(table, ours, numbers);
  std::vector<torch::Tensor> seen;
  for (const auto& gradient : vectors()["gradients"]) {
    optimizer->apply(first(gradient), vectors()["lr"]);
    if (optimizer->optimizer_steps() == vectors()["seen_after"][seen.size()].get<std::uint64_t>())
      seen.push_back(ours.clone());
  }
  return seen;
}

bool close(const torch::Tensor& ours, const torch::Tensor& expected) {
  return torch::allclose(ours, expected, 1e-5, 1e-7);
}

std::string name_of(const json& run) {
  return run["optimizer"].dump() + " " + run["numbers"].dump() + " weight decay "
         + run["weight_decay"].dump() + (run["vectors_decay"] ? "" : " of matrices");
}

// -- as PyTorch -----------------------------------------------------------------------------------

TEST(RuleOptimizer, EveryOptimizerTakesTheStepsOfItsReference) {
  std::set<std::string> compared;
  for (const auto& run : vectors()["runs"]) {
    auto numbers = numbers_of(run);
    compared.insert(numbers.kind);
    auto seen = steps_of(run, numbers);
    ASSERT_EQ(seen.size(), run["after"].size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      auto expected = tensor_of(run["after"][i]);
      EXPECT_TRUE(close(seen[i], expected))
        << name_of(run) << ", step " << vectors()["seen_after"][i] << ": differs by "
        << (seen[i] - expected).abs().max().item<float>();
    }
  }
  for (const auto& row : optimizer_table())
    EXPECT_TRUE(compared.contains(std::string{row.name})) << row.name;
}

// Otherwise the comparison above would not notice that an option is ignored.
TEST(RuleOptimizer, EveryOptionOfEveryOptimizerChangesTheStepsOfAReference) {
  std::set<std::pair<std::string, std::string>> compared;
  for (const auto& run : vectors()["runs"])
    for (const auto& [option, value] : run["numbers"].items()) {
      auto without = run;
      without["numbers"].erase(option);
      EXPECT_FALSE(close(steps_of(run, numbers_of(without)).back(), tensor_of(run["after"].back())))
        << name_of(run) << ": " << option << " makes no difference";
      compared.emplace(run["optimizer"], option);
    }
  for (const auto& row : optimizer_table())
    for (const auto& option : row.takes)
      EXPECT_TRUE(compared.contains({std::string{row.name}, std::string{option.name}}))
        << row.name << " " << option.name;
}

TEST(RuleOptimizer, EachGroupHasTheOptionsThatItWasGiven) {
  auto with = [](double decay, double lr) {
    auto options = std::make_unique<rule_options>(identity_with("sgd", {}), lr);
    options->numbers.weight_decay = decay;
    return options;
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{torch::zeros({2})}, with(0, 0.5));
  rule_optimizer optimizer{groups, *with(0.1, 1)};
  optimizer.add_param_group({{torch::zeros({2})}, with(0.2, 0.25)});
  optimizer.add_param_group(std::vector{torch::zeros({2})});
  std::vector<std::pair<double, double>> seen;
  for (const auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const rule_options&>(group.options());
    seen.emplace_back(options.numbers.weight_decay, options.lr);
  }
  EXPECT_EQ(seen, (std::vector<std::pair<double, double>>{{0, 0.5}, {0.2, 0.25}, {0.1, 1}}));
}

TEST(RuleOptimizer, TwoPeersWithEqualInputsGetEqualBytesWhateverTheirThreads) {
  std::vector<sizes> shapes{{130, 70}, {70}, {3, 5, 300}, {40, 200}};
  for (const auto& run : vectors()["runs"]) {
    auto numbers = numbers_of(run);
    if (numbers.decay_vectors)
      continue; // the same rules
    auto table = table_for(shapes, numbers);
    auto generator = at::detail::createCPUGenerator(5);
    auto a = torch::randn({static_cast<std::int64_t>(table.parameter_count())}, generator);
    auto b = a.clone();
    auto of_a = updated_tensors::of_flat(table, a, numbers);
    auto of_b = updated_tensors::of_flat(table, b, numbers);
    for (int step = 0; step < 3; ++step) {
      auto gradient = torch::randn({a.numel()}, generator);
      torch::set_num_threads(1);
      of_a->apply(gradient, 0.01);
      torch::set_num_threads(2);
      of_b->apply(gradient, 0.01);
    }
    EXPECT_TRUE(torch::equal(a, b)) << run["optimizer"] << " " << run["numbers"];
    EXPECT_TRUE(torch::equal(statistics_of(*of_a, table), statistics_of(*of_b, table)))
      << run["optimizer"];
    EXPECT_TRUE(std::isfinite(a.sum().item<double>())) << run["optimizer"];
  }
  torch::set_num_threads(1);
}

TEST(RuleOptimizer, AStepOfALongVectorIsThatOfItsPieces) {
  for (const auto& run : vectors()["runs"]) {
    auto numbers = numbers_of(run);
    if (update_rule_named(numbers.kind).whole_tensors || !numbers.decay_vectors
        || numbers.weight_decay == 0)
      continue;
    constexpr std::int64_t cut = 700'000; // not at a boundary of the optimizer's own slices
    auto generator = at::detail::createCPUGenerator(5);
    auto whole = torch::randn({1'000'003}, generator);
    auto head = whole.narrow(0, 0, cut).clone();
    auto tail = whole.narrow(0, cut, whole.numel() - cut).clone();
    auto optimizer_for = [&](const torch::Tensor& values) {
      return updated_tensors::of_flat(
        table_for({{static_cast<std::uint64_t>(values.numel())}}, numbers), values, numbers);
    };
    auto of_whole = optimizer_for(whole);
    auto of_head = optimizer_for(head);
    auto of_tail = optimizer_for(tail);
    for (int step = 0; step < 2; ++step) {
      auto gradient = torch::randn({whole.numel()}, generator);
      of_whole->apply(gradient, 0.01);
      of_head->apply(gradient.narrow(0, 0, cut), 0.01);
      of_tail->apply(gradient.narrow(0, cut, tail.numel()), 0.01);
      ASSERT_TRUE(torch::equal(whole, torch::cat({head, tail})))
        << run["optimizer"] << " " << run["numbers"] << ", step " << step;
    }
  }
}

// -- on other processors --------------------------------------------------------------------------

/// The bytes that the rules leave in tensors whose sizes are no multiples of an instruction's.
std::string updates_of_all_rules() {
  const std::vector<sizes> shapes{{7}, {1}, {33, 31}, {5, 3, 17}, {1003}, {300'001}};
  std::string all;
  for (const auto& run : vectors()["runs"]) {
    auto numbers = numbers_of(run);
    auto table = table_for(shapes, numbers);
    random_source random{5};
    auto next = [&](double scale) {
      auto out = torch::empty({static_cast<std::int64_t>(table.parameter_count())});
      for (auto& value : std::span{out.data_ptr<float>(), table.parameter_count()})
        value = static_cast<float>(scale * (random.unit() - 0.5));
      return out;
    };
    auto parameters = next(1);
    auto optimizer = updated_tensors::of_flat(table, parameters, numbers);
    for (int step = 0; step < 6; ++step)
      optimizer->apply(next(step % 2 == 0 ? 0.1 : 1e-4), 0.01);
    sha256_stream hash;
    for (const auto& part : {parameters, statistics_of(*optimizer, table)})
      hash.add(
        std::as_bytes(std::span{part.data_ptr<float>(), static_cast<std::size_t>(part.numel())}));
    all += name_of(run) + ": " + to_string(hash.finish()) + "\n";
  }
  return all;
}

/// The rounding of each optimizer of torch.
std::string roundings_of_torch() {
  std::string all;
  for (auto name : {"sgd", "adam", "adamw", "adagrad", "rmsprop"}) {
    auto w = torch::zeros({3, 2}).requires_grad_();
    auto table = table_for({{3, 2}}, identity_with(name, {}));
    auto made = make_optimizer(identity_with(name, {}), 0.1, {w});
    const auto& kind = torch_optimizer_of(*made);
    const updated_tensors loop{table, {w}, kind, std::move(made), rate_owner::optimizer};
    all += std::string{name} + " " + std::to_string(loop.rounding()) + "\n";
  }
  return all;
}

// Run by the next test, in a process whose LibTorch takes the processor for another one.
TEST(OnAnotherProcessor, DISABLED_Prints) {
  std::cout << "updates\n" << updates_of_all_rules() << "torch\n" << roundings_of_torch() << "end";
}

struct printed {
  std::string updates;
  std::string of_torch;
};
printed on_a_processor_with(const std::string& capability) {
  auto command = "ATEN_CPU_CAPABILITY=" + capability + " '"
                 + std::filesystem::read_symlink("/proc/self/exe").string()
                 + "' --gtest_filter='*DISABLED_Prints' --gtest_also_run_disabled_tests";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), ::pclose};
  std::string text;
  for (char line[512]; pipe && std::fgets(line, sizeof line, pipe.get()) != nullptr;)
    text += line;
  auto between = [&text](std::string_view from, std::string_view to) {
    auto begin = text.find(from) + from.size();
    return text.substr(begin, text.find(to, begin) - begin);
  };
  return {between("updates\n", "torch\n"), between("torch\n", "end")};
}

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

TEST(OnAnotherProcessor, UpdatesOfEveryRuleHaveTheSameBytes) {
  if (!has_avx2())
    GTEST_SKIP() << "this machine cannot be two processors";
  auto plain = on_a_processor_with("default");
  auto modern = on_a_processor_with("avx2");
  EXPECT_GT(plain.updates.size(), 100U);
  EXPECT_EQ(plain.updates, modern.updates);
  EXPECT_NE(plain.of_torch, modern.of_torch) << "LibTorch has not taken it for another one";
}

TEST(OnAnotherProcessor, APeerKnowsThatTheOptimizersOfTorchRoundDifferently) {
  if (!has_avx2())
    GTEST_SKIP() << "this machine cannot be two processors";
  std::istringstream plain{on_a_processor_with("default").of_torch};
  std::istringstream modern{on_a_processor_with("avx2").of_torch};
  std::string other;
  for (std::string line; std::getline(plain, line) && std::getline(modern, other);)
    EXPECT_NE(line, other);
  EXPECT_EQ(other.substr(0, 7), "rmsprop") << "all were compared";
}

TEST(FusedSum, RoundsOnceOnEachPath) {
  random_source random{8};
  constexpr std::size_t count = 4'099;
  std::vector<float> sums(count);
  std::vector<float> a(count);
  std::vector<float> b(count);
  // All bits are arbitrary, with few of them set as often as many, so that sums end between two
  // floats. Exponents: about equal, or of results with fewer bits.
  auto next = [&](std::uint32_t exponent) {
    auto bits = static_cast<std::uint32_t>(random.next());
    if (random.below(3) == 0)
      bits &= 0x807F'F000U;
    auto value =
      (bits & 0x807F'FFFFU) | (exponent + static_cast<std::uint32_t>(random.below(40))) << 23U;
    return std::bit_cast<float>(value);
  };
  for (int round = 0; round < 300; ++round) {
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = next(round % 2 == 0 ? 107 : 50);
      b[i] = next(round % 2 == 0 ? 107 : 30);
      sums[i] = random.below(20) == 0 ? 0 : next(round % 2 == 0 ? 107 : 0);
    }
    auto by = round % 3 == 0 ? 1.0F : 0.3F;
    auto keep = round % 5 == 0 ? 1.0F : 0.9F;
    for (const float* factors : {static_cast<const float*>(nullptr), std::as_const(b).data()})
      for (auto path : {fused_path::portable, best_fused_path()}) {
        auto out = sums; // in place
        fused_sum{out.data(), out.data(), a.data(), factors, by, keep}.compute(count, path);
        for (std::size_t i = 0; i < count; ++i) {
          auto exact = factors != nullptr ? std::fma(by * a[i], factors[i], keep * sums[i])
                                          : std::fma(a[i], by, keep * sums[i]);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(exact))
            << a[i] << " " << sums[i];
        }
      }
  }
}

// -- statistics -----------------------------------------------------------------------------------

TEST(RuleOptimizer, KeepsNoStatisticsItDoesNotNeed) {
  auto names = [](std::string_view kind, const std::map<std::string, double>& set) {
    auto numbers = identity_with(kind, set);
    std::vector<std::string> found;
    auto table = table_for({{4, 3}, {3}}, numbers);
    for (std::size_t i = 2; i + 1 < table.size(); ++i)
      found.push_back(table[i].name);
    EXPECT_EQ(table[table.size() - 1].name, left_out_name);
    auto parameters = torch::zeros({15});
    auto all = statistics_of(*updated_tensors::of_flat(table, parameters, numbers), table);
    EXPECT_EQ(static_cast<std::uint64_t>(all.numel()), table.value_count() - 15);
    EXPECT_EQ(all.count_nonzero().item<std::int64_t>(), 0) << kind;
    return found;
  };
  using list = std::vector<std::string>;
  EXPECT_EQ(names("sgd", {}), list{});
  EXPECT_EQ(names("sgd", {{"momentum", 0.9}}), (list{"momentum_buffer/p0", "momentum_buffer/p1"}));
  EXPECT_EQ(names("adam", {}),
            (list{"exp_avg/p0", "exp_avg/p1", "exp_avg_sq/p0", "exp_avg_sq/p1"}));
  EXPECT_EQ(names("adamw", {{"amsgrad", 1}}).back(), "max_exp_avg_sq/p1");
  EXPECT_EQ(names("adagrad", {}), (list{"sum/p0", "sum/p1"}));
  EXPECT_EQ(names("rmsprop", {{"centered", 1}}),
            (list{"square_avg/p0", "square_avg/p1", "grad_avg/p0", "grad_avg/p1"}));
  EXPECT_EQ(names("lion", {}), (list{"exp_avg/p0", "exp_avg/p1"}));
  EXPECT_EQ(names("adafactor", {}), (list{"row_var/p0", "col_var/p0", "variance/p1"}));
  EXPECT_EQ(names("muon", {}), (list{"momentum_buffer/p0", "exp_avg/p1", "exp_avg_sq/p1"}));
}

// The plain loop is the baseline for the speed of a peer, so it must do the same work.
TEST(PlainLoop, FollowsTheTrajectoryOfALearner) {
  for (const auto& row : optimizer_table()) {
    learner_config config;
    config.layers = 1;
    config.width = 16;
    config.heads = 2;
    config.context = 12;
    config.micro_batch = 4;
    config.optimizer = identity_with(row.name, {});
    config.device = "cpu";
    // Signs of tiny gradients, and lengths that begin at 0, enlarge rounding errors.
    bool sensitive = row.name == "lion" || update_rule_named(row.name).whole_tensors;
    auto lr = sensitive ? 1e-3 : 1e-2;
    auto loop = run_plain_loop(config, 10, lr, 4); // 12 samples per step: whole micro-batches
    EXPECT_EQ(loop->optimizer_steps, 4u);
    EXPECT_EQ(loop->micro_steps, 12u);
    EXPECT_GT(loop->timing.seconds, 0);
    auto model = make_torch_learner(config);
    double loss = 0;
    for (int step = 0; step < 5; ++step) { // including the warm-up
      for (int pass = 0; pass < 3; ++pass)
        loss = (*model)->accumulate().loss;
      (*model)->apply(mean_gradient_of(**model), lr);
      (*model)->drop_gradient();
    }
    EXPECT_NEAR(loop->last_loss, loss, 1e-3) << row.name;
  }
}

TEST(PlainLoop, RefusesWhatALearnerRefuses) {
  learner_config config;
  config.data = "/nowhere/at/all";
  EXPECT_EQ(run_plain_loop(config, 10, 1e-2, 1).error().code, ec::bad_config);
}

TEST(Cuda, LearnerOnTheGpuFollowsTheOneOnTheCpu) {
  if (!torch::cuda::is_available())
    GTEST_SKIP() << "this machine, or this LibTorch, has no CUDA";
  learner_config config;
  config.device = "cuda";
  auto gpu = make_torch_learner(config);
  config.device = "cpu";
  auto cpu = make_torch_learner(config);
  ASSERT_TRUE(gpu && cpu);
  EXPECT_EQ((*gpu)->parameters_digest(), (*cpu)->parameters_digest());
  for (int step = 0; step < 3; ++step) {
    EXPECT_NEAR((*gpu)->accumulate().loss, (*cpu)->accumulate().loss, 1e-3);
    auto gradient = mean_gradient_of(**cpu);
    for (auto* model : {gpu->get(), cpu->get()}) {
      model->apply(gradient, 1e-3);
      model->drop_gradient();
    }
  }
  EXPECT_TRUE(testing::load_state(**cpu, testing::save_state(**gpu)));
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return std::sqrt(squares);
}

// A scaled loss in half precision makes nearly the updates of float32.
TEST(Cuda, Float16WithAScaleOfTheLossFollowsFloat32) {
  if (!torch::cuda::is_available())
    GTEST_SKIP() << "this machine, or this LibTorch, has no CUDA";
  // A float16 has 11 bits, and several operations in sequence round.
  constexpr double rounding = 4.0 / 2048;
  learner_config config;
  config.device = "cuda";
  config.optimizer = identity_with("sgd", {});
  auto exact = make_torch_learner(config);
  config.format = precision::float16;
  config.loss_scale = constant_scale(1024);
  auto rounded = make_torch_learner(config);
  ASSERT_TRUE(exact && rounded);
  const std::vector<float> zeros((*exact)->parameter_count());
  for (int update = 0; update < 5; ++update) {
    auto expected = (*exact)->accumulate();
    auto step = (*rounded)->accumulate();
    ASSERT_TRUE(step.finite && !step.overflow);
    EXPECT_EQ(step.scale, 1024);
    EXPECT_NEAR(step.loss, expected.loss, rounding * expected.loss);
    auto gradient = mean_gradient_of(**exact);
    auto near = mean_gradient_of(**rounded);
    EXPECT_NE(near, gradient) << "it is not in use";
    EXPECT_LT(distance(near, gradient), rounding * distance(gradient, zeros)) << update;
    (*exact)->apply(gradient, 1e-2);
    (*rounded)->apply(near, 1e-2);
  }
}

TEST(Cuda, IsRefusedWithASentenceWhereThereIsNone) {
  if (torch::cuda::is_available())
    GTEST_SKIP() << "this machine has CUDA";
  learner_config config;
  config.device = "cuda";
  EXPECT_NE(check_learner_config(config).error().detail.find("--device cuda"), std::string::npos);
  config.device = "auto";
  EXPECT_TRUE(check_learner_config(config));
}

} // namespace

} // namespace waggle
