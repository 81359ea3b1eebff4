#include "trainer/script_model.hpp"

#include <cstring>
#include <filesystem>

#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/version.h>

#include "runtime/training/training_state.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/trainer/image_folder.hpp"
#include "trainer/torch_learner.hpp"
#include "trainer/train_command.hpp"

namespace waggle {

namespace {

using torch::jit::Module;

constexpr const char* linear = R"(
def forward(self, x):
    return torch.matmul(x.flatten(1), self.w) + self.b
)";

class ScriptModel : public ::testing::Test {
protected:
  [[nodiscard]] learner_config config() const {
    learner_config c;
    c.model = (images.path / "net.pt").string();
    c.data = images.path.string();
    c.eval_data = images.path.string();
    c.micro_batch = 20;
    c.device = "cpu";
    c.optimizer = optimizer_identity{"sgd"};
    return c;
  }
  static torch::Tensor trained(const torch::Tensor& values) {
    return values.detach().requires_grad_();
  }
  /// @param source of its functions, unless the test defines them later.
  static Module classifier(const std::string& source = {}) {
    torch::manual_seed(7);
    Module module{"net"};
    module.register_parameter("w", trained(0.1 * torch::randn({64, 10})), false);
    module.register_parameter("b", trained(torch::zeros({10})), false);
    module.define(source);
    return module;
  }
  void save(const Module& module) const { module.save(config().model); }
  [[nodiscard]] std::string refusal() const {
    auto fits = check_learner_config(config());
    return fits ? "" : fits.error().detail;
  }

  image_folder images;
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(ScriptModel, TrainsAndIsMeasured) {
  save(classifier(linear));
  auto made = make_torch_learner(config());
  auto& model = **made;
  EXPECT_EQ(model.tensors()[0].name, "b"); // sorted
  EXPECT_EQ(model.tensors()[1].name, "w");
  float_vector mean(model.gradient_count());
  for (int i = 0; i < 150; ++i) {
    ASSERT_TRUE(model.accumulate().finite);
    testing::take_mean_gradient(model, mean);
    model.apply(mean, 0.3);
  }
  auto judge = make_evaluator(config());
  auto found = (*judge)->measure(weights_of(model), false);
  EXPECT_GT(found->accuracy, 0.95);
}

TEST_F(ScriptModel, APlanCountsWhatItTrainsAndMeasuresAPass) {
  auto module = classifier(linear);
  module.register_parameter("frozen", torch::zeros({3, 5}), false);
  save(module);
  run_options options;
  static_cast<learner_options&>(options) = config();
  auto facts = facts_of_model(options, model_look::count);
  EXPECT_EQ(facts->trained, 650U);
  EXPECT_EQ(facts->frozen, 15U);
  EXPECT_EQ(facts->step_seconds, 0);
  facts = facts_of_model(options, model_look::measure);
  EXPECT_GT(facts->step_seconds, 0);
  options.model = "cnn";
  auto made = make_torch_learner(learner_from(options, {}));
  EXPECT_EQ(facts_of_model(options, model_look::count)->trained,
            (*made)->tensors().parameter_count());
  options.model = "none.pt";
  EXPECT_EQ(facts_of_model(options, model_look::count).error().code, ec::bad_config);
}

// The gradient is that of torch for the same module and samples.
TEST_F(ScriptModel, ItsGradientIsThatOfThePlainModule) {
  save(classifier(linear));
  auto made = make_torch_learner(config());
  float_vector mean((*made)->gradient_count());
  auto loss = (*made)->accumulate().loss;
  testing::take_mean_gradient(**made, mean);
  auto data = open_data(config());
  window_sampler sampler{*data, 1, random_source{config().data_seed}};
  auto samples = next_batch(sampler, 20, torch::kCPU);
  auto plain = load_module(config().model);
  auto expected = torch::nn::functional::cross_entropy(plain->forward({samples->inputs}).toTensor(),
                                                       samples->targets);
  expected.backward();
  EXPECT_EQ(loss, expected.item<double>());
  auto b = plain->attr("b").toTensor().grad();
  for (std::int64_t i = 0; i < 10; ++i)
    EXPECT_FLOAT_EQ(mean[static_cast<std::size_t>(i)], b[i].item<float>());
}

TEST_F(ScriptModel, TiedParametersAreTrainedOnceWithTheSumOfTheirGradients) {
  Module inner{"inner"};
  Module module{"net"};
  auto shared = trained(torch::randn({64, 10}));
  inner.register_parameter("v", shared, false);
  inner.define("def forward(self, x):\n    return torch.matmul(x, self.v)\n");
  module.register_parameter("w", shared, false);
  module.register_module("inner", inner);
  module.define("def forward(self, x):\n    y = x.flatten(1)\n    return torch.matmul(y, self.w) + "
                "self.inner.forward(y)\n");
  save(module);
  auto made = make_torch_learner(config());
  EXPECT_EQ((*made)->tensors().parameter_count(), 640u);
  EXPECT_EQ((*made)->tensors()[0].name, "inner.v"); // the first of its names
  float_vector before(640);
  (*made)->read_tensor(0, before);
  (*made)->accumulate();
  float_vector mean((*made)->gradient_count());
  testing::take_mean_gradient(**made, mean);
  (*made)->apply(mean, 1);
  float_vector after(640);
  (*made)->read_tensor(0, after);
  auto once = load_module(config().model);
  auto w = once->attr("w").toTensor();
  EXPECT_TRUE(w.is_same(once->attr("inner").toModule().attr("v").toTensor()));
  auto data = open_data(config());
  window_sampler sampler{*data, 1, random_source{config().data_seed}};
  auto samples = next_batch(sampler, 20, torch::kCPU);
  torch::nn::functional::cross_entropy(once->forward({samples->inputs}).toTensor(),
                                       samples->targets)
    .backward();
  auto gradient = w.grad().reshape({-1});
  for (std::size_t i = 0; i < 640; i += 37)
    EXPECT_NEAR(before[i] - after[i], gradient[static_cast<std::int64_t>(i)].item<float>(), 1e-6);
}

TEST_F(ScriptModel, RunningStatisticsAreBuffersOfTheState) {
  auto module = classifier();
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("gain", trained(torch::ones({64})), false);
  module.register_buffer("running_mean", torch::zeros({64}));
  module.register_buffer("running_var", torch::ones({64}));
  module.define(R"(
def forward(self, x):
    y = torch.batch_norm(x.flatten(1), self.gain, None, self.running_mean, self.running_var, self.training, 0.1, 1e-05, False)
    return torch.matmul(y, self.w) + self.b
)");
  save(module);
  auto made = make_torch_learner(config());
  auto& model = **made;
  EXPECT_EQ(model.tensors().buffer_count(), 128u);
  float_vector mean(model.gradient_count());
  ASSERT_EQ(mean.size(), model.parameter_count() + 128);
  model.accumulate();
  testing::take_mean_gradient(model, mean);
  auto running = mean[model.parameter_count() + 3]; // of value 3, after one pass
  EXPECT_GT(running, 0.005);
  EXPECT_LT(running, 0.1);
  // A round's mean replaces them.
  std::vector<float> of_the_round(128, 0.5F);
  model.merge_buffers(of_the_round, {});
  EXPECT_EQ(weights_of(model)[model.parameter_count() + 3], 0.5F);
  // A peer that loads them sends them on, also before its first pass.
  auto joined = make_torch_learner(config());
  ASSERT_TRUE(testing::load_state(**joined, testing::save_state(model)));
  testing::take_mean_gradient(**joined, mean);
  EXPECT_EQ(mean[model.parameter_count() + 3], 0.5F);
  auto other = config();
  other.offload_optimizer = true;
  EXPECT_SAYS(make_torch_learner(other).error().detail, "without running statistics");
}

TEST_F(ScriptModel, ParametersAndRunningStatisticsWithoutValuesAreLeftOut) {
  auto module = classifier();
  module.register_parameter("adapter", trained(torch::zeros({0, 10})), false);
  module.register_parameter("another", trained(torch::zeros({10, 0})), false);
  module.register_buffer("running_mean", torch::zeros({0}));
  module.define("def forward(self, x):\n    return torch.matmul(x.flatten(1), self.w) + self.b + "
                "self.adapter.sum() + self.another.sum() + self.running_mean.sum()\n");
  save(module);
  auto made = make_torch_learner(config());
  EXPECT_EQ((*made)->tensors().size(), 3U); // with what was left out
  float_vector mean((*made)->gradient_count());
  ASSERT_TRUE((*made)->accumulate().finite);
  testing::take_mean_gradient(**made, mean);
  (*made)->apply(mean, 0.1);

  Module empty{"net"};
  empty.register_parameter("w", trained(torch::zeros({64, 0})), false);
  empty.define("def forward(self, x):\n    return torch.matmul(x.flatten(1), self.w)\n");
  save(empty);
  EXPECT_SAYS(refusal(), "none of its parameters has values");
}

TEST_F(ScriptModel, AnExportedLossIsUsedAndMustBeOneNumber) {
  auto module = classifier(linear);
  module.define("def loss(self, x, y):\n    return 2 * torch.cross_entropy_loss("
                "self.forward(x), y)\n");
  save(module);
  auto twice = make_torch_learner(config());
  save(classifier(linear));
  auto plain = make_torch_learner(config());
  EXPECT_NEAR((*twice)->accumulate().loss, 2 * (*plain)->accumulate().loss, 1e-5);
  auto wrong = classifier(linear);
  wrong.define("def loss(self, x, y):\n    return self.forward(x).sum(1)\n");
  save(wrong);
  EXPECT_SAYS(refusal(), "its loss is a tensor of 20 values: return one number");
}

TEST_F(ScriptModel, SquaresAreALossToo) {
  save(classifier(linear));
  auto squares = config();
  squares.loss = "mse";
  auto made = make_torch_learner(squares);
  auto loss = (*made)->accumulate().loss;
  EXPECT_GT(loss, 0.01);
  EXPECT_LT(loss, 2);
}

TEST_F(ScriptModel, WhatCannotBeTrainedIsRefusedWithWhatToDo) {
  EXPECT_SAYS(refusal(), "No such file");
  std::ofstream{config().model} << "no zip";
  EXPECT_SAYS(refusal(), "LibTorch " TORCH_VERSION);
  EXPECT_SAYS(refusal(), "; if a newer");
  EXPECT_SAYS(refusal(), "save it again with torch.jit.save of PyTorch " TORCH_VERSION);

  Module frozen{"net"}; // constants are no parameters
  frozen.register_attribute("w", c10::TensorType::get(), torch::zeros({64, 10}));
  frozen.define("def forward(self, x):\n    return torch.matmul(x.flatten(1), self.w)\n");
  save(frozen);
  EXPECT_SAYS(refusal(), "it has no parameters, as after torch.jit.freeze");

  auto half = classifier(linear);
  half.to(torch::kHalf);
  save(half);
  EXPECT_SAYS(refusal(), "the parameter b is Half, and training needs float32");

  save(classifier("def scores(self, x):\n    return x\n"));
  EXPECT_SAYS(refusal(), "it has no loss: export a method loss(inputs, targets), or a forward");

  auto dropout =
    classifier("def forward(self, x):\n    return torch.matmul(torch.dropout(x.flatten(1) + 1, "
               "0.5, True), self.w) + self.b\n");
  save(dropout);
  EXPECT_SAYS(refusal(), "its dropout was traced and does not follow train()");

  save(classifier("def forward(self, x):\n    return torch.matmul(x.flatten(1)[:, 1:], self.w)\n"));
  EXPECT_SAYS(refusal(), "it cannot compute a loss of images of 1 × 8 × 8, inputs [20, 1, 8, 8]");
}

TEST_F(ScriptModel, AnOperatorOfANewerPyTorchIsNamed) {
  auto module = classifier(linear);
  save(module);
  auto changed = config().model + ".changed";
  {
    caffe2::serialize::PyTorchStreamReader reader{config().model};
    caffe2::serialize::PyTorchStreamWriter writer{changed};
    for (const auto& name : reader.getAllRecords()) {
      auto [content, size] = reader.getRecord(name);
      std::string text(static_cast<const char*>(content.get()), size);
      if (auto at = text.find("torch.matmul"); at != std::string::npos)
        text.replace(at, std::strlen("torch.matmul"), "torch.a_new_operator");
      if (name != "version") // the writer adds it
        writer.writeRecord(name, text.data(), text.size());
    }
    writer.writeEndOfFile();
  }
  std::filesystem::rename(changed, config().model);
  EXPECT_SAYS(refusal(), "cannot load it: Unknown builtin op: aten::a_new_operator.; train the "
                         "module from Python by waggle.Optimizer");
}

TEST_F(ScriptModel, AFileOfANewerPyTorchNamesItsVersion) {
  {
    caffe2::serialize::PyTorchStreamWriter writer{config().model};
    writer.setMinVersion(99);
    writer.writeRecord("data.pkl", "x", 1);
    writer.writeEndOfFile();
  }
  EXPECT_SAYS(refusal(), "version 99");
  EXPECT_SAYS(refusal(), "if a newer PyTorch has saved it, save it again");
}

} // namespace

} // namespace waggle
