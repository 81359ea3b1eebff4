#include "trainer/models.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"

namespace waggle {

namespace {

namespace nn = torch::nn;

/// One pre-norm transformer block with causal attention (GPT-2's, Radford et al. 2019).
class block_impl : public nn::Module {
public:
  block_impl(std::int64_t width, std::int64_t heads)
    : heads_(heads), norm1_(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})))),
      qkv_(register_module("qkv", nn::Linear(width, 3 * width))),
      out_(register_module("out", nn::Linear(width, width))),
      norm2_(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})))),
      up_(register_module("up", nn::Linear(width, 4 * width))),
      down_(register_module("down", nn::Linear(4 * width, width))) {}

  /// x: [batch, time, width]; mask: [time, time], −∞ above the diagonal.
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask) {
    auto batch = x.size(0);
    auto time = x.size(1);
    auto width = x.size(2);
    auto head = width / heads_;
    auto parts = qkv_(norm1_(x)).view({batch, time, 3, heads_, head}).permute({2, 0, 3, 1, 4});
    auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1))
                  * (1.0 / std::sqrt(static_cast<double>(head)));
    auto mixed = torch::matmul(torch::softmax(scores + mask, -1), parts[2]);
    x = x + out_(mixed.transpose(1, 2).reshape({batch, time, width}));
    return x + down_(torch::gelu(up_(norm2_(x))));
  }

private:
  std::int64_t heads_;
  nn::LayerNorm norm1_;
  nn::Linear qkv_;
  nn::Linear out_;
  nn::LayerNorm norm2_;
  nn::Linear up_;
  nn::Linear down_;
};
TORCH_MODULE_IMPL(block, block_impl);

/// Predicts each byte of a window from the bytes before it.
class char_gpt final : public classifier {
public:
  char_gpt(const learner_config& config, const sample_shape& shape)
    : vocabulary_(shape.classes),
      bytes_(register_module("bytes", nn::Embedding(vocabulary_, config.width))),
      positions_(register_module("positions", nn::Embedding(config.context, config.width))),
      norm_(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({config.width})))),
      head_(register_module("head",
                            nn::Linear(nn::LinearOptions(config.width, vocabulary_).bias(false)))) {
    for (std::int64_t i = 0; i < config.layers; ++i)
      blocks_.push_back(
        register_module("block" + std::to_string(i), block(config.width, config.heads)));
  }

  torch::Tensor logits(const torch::Tensor& inputs) override {
    auto time = inputs.size(1);
    if (!mask_.defined() || mask_.size(0) != time || mask_.device() != inputs.device()) {
      auto places = torch::arange(time, inputs.options());
      mask_ = torch::full({time, time}, -std::numeric_limits<float>::infinity(),
                          inputs.options().dtype(torch::kFloat32))
                .triu(1);
      places_ = places;
    }
    auto x = bytes_(inputs) + positions_(places_);
    for (auto& b : blocks_)
      x = b(x, mask_);
    auto scores = head_(norm_(x)).to(torch::kFloat32); // autocast may have made them smaller
    return scores.reshape({-1, vocabulary_});
  }

  [[nodiscard]] double initial_deviation(const std::string& /*name*/,
                                         const torch::Tensor& /*parameter*/) const override {
    return 0.02;
  }

private:
  std::int64_t vocabulary_;
  nn::Embedding bytes_;
  nn::Embedding positions_;
  nn::LayerNorm norm_;
  nn::Linear head_;
  std::vector<block> blocks_;
  torch::Tensor mask_;
  torch::Tensor places_;
};

/// Predicts the last byte of a window from the concatenated embeddings of the other bytes.
class byte_mlp final : public classifier {
public:
  byte_mlp(const learner_config& config, const sample_shape& shape)
    : bytes_(register_module("bytes", nn::Embedding(shape.classes, embedding))) {
    auto inputs = config.context * embedding;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      hidden_.push_back(
        register_module("hidden" + std::to_string(i), nn::Linear(inputs, config.width)));
      inputs = config.width;
    }
    head_ = register_module("head", nn::Linear(inputs, shape.classes));
  }

  torch::Tensor logits(const torch::Tensor& inputs) override {
    auto x = bytes_(inputs).reshape({inputs.size(0), -1});
    for (auto& layer : hidden_)
      x = torch::relu(layer(x));
    return head_(x).to(torch::kFloat32);
  }
  [[nodiscard]] torch::Tensor predicted(const torch::Tensor& targets) const override {
    return targets.select(1, targets.size(1) - 1);
  }

  [[nodiscard]] double initial_deviation(const std::string& name,
                                         const torch::Tensor& parameter) const override {
    bool is_embedding = name.find("bytes") != std::string::npos;
    return is_embedding ? 1.0 : std::sqrt(2.0 / static_cast<double>(parameter.size(1)));
  }

private:
  static constexpr std::int64_t embedding = 8;

  nn::Embedding bytes_;
  std::vector<nn::Linear> hidden_;
  nn::Linear head_{nullptr};
};

/// Classifies images: convolutions of 3 × 3, each followed by a maximum over 2 × 2, then a hidden
/// layer.
class image_cnn final : public classifier {
public:
  image_cnn(const learner_config& config, const sample_shape& shape) {
    auto channels = shape.channels;
    auto rows = shape.rows;
    auto columns = shape.columns;
    auto next = config.width / 4;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      convolutions_.push_back(
        register_module("convolution" + std::to_string(i),
                        nn::Conv2d(nn::Conv2dOptions(channels, next, 3).padding(1))));
      channels = next;
      next *= 2;
      rows /= 2;
      columns /= 2;
    }
    hidden_ = register_module("hidden", nn::Linear(channels * rows * columns, config.width));
    head_ = register_module("head", nn::Linear(config.width, shape.classes));
  }

  torch::Tensor logits(const torch::Tensor& inputs) override {
    auto x = inputs;
    for (auto& convolution : convolutions_)
      x = torch::max_pool2d(torch::relu(convolution(x)), 2);
    return head_(torch::relu(hidden_(x.flatten(1)))).to(torch::kFloat32);
  }

  [[nodiscard]] double initial_deviation(const std::string& /*name*/,
                                         const torch::Tensor& parameter) const override {
    auto inputs = parameter.numel() / parameter.size(0);
    return std::sqrt(2.0 / static_cast<double>(inputs));
  }

private:
  std::vector<nn::Conv2d> convolutions_;
  nn::Linear hidden_{nullptr};
  nn::Linear head_{nullptr};
};

/// Sets the gains of norms to 1, biases to 0 and all other parameters to normal values. Uses a
/// separate generator, so that the seed of the process's global generator does not change.
void initialize(classifier& model, std::uint64_t seed) {
  torch::NoGradGuard guard;
  auto generator = at::detail::createCPUGenerator(seed);
  for (auto& item : model.named_parameters()) {
    auto& p = item.value();
    bool bias = item.key().ends_with("bias");
    bool norm = item.key().find("norm") != std::string::npos;
    if (bias)
      p.zero_();
    else if (norm)
      p.fill_(1);
    else
      p.normal_(0, model.initial_deviation(item.key(), p), generator);
  }
}

template <class Model>
std::shared_ptr<classifier> make(const learner_config& config, const sample_shape& shape) {
  return std::make_shared<Model>(config, shape);
}

/// A row for each of model_table. A model may be too large to be made: its parameters are counted
/// by numbers.
struct model_maker {
  std::string_view name;
  std::shared_ptr<classifier> (*make)(const learner_config& config, const sample_shape& shape);
  double (*parameters)(double width, double layers, const learner_config& config,
                       const sample_shape& shape);
};
constexpr std::array makers{
  model_maker{
    "char-gpt", make<char_gpt>,
    [](double width, double layers, const learner_config& config, const sample_shape& shape) {
      auto rows = 2 * static_cast<double>(shape.classes) + static_cast<double>(config.context) + 2;
      return rows * width + layers * (12 * width * width + 13 * width);
    }},
  model_maker{
    "mlp", make<byte_mlp>,
    [](double width, double layers, const learner_config& config, const sample_shape& shape) {
      auto classes = static_cast<double>(shape.classes);
      double inputs = 8 * static_cast<double>(config.context);
      double all = 8 * classes;
      for (double i = 0; i < layers; ++i)
        all += (std::exchange(inputs, width) + 1) * width;
      return all + (inputs + 1) * classes;
    }},
  model_maker{"cnn", make<image_cnn>,
              [](double width, double layers, const learner_config&, const sample_shape& shape) {
                auto channels = static_cast<double>(shape.channels);
                auto rows = shape.rows;
                auto columns = shape.columns;
                double next = std::floor(width / 4), all = 0;
                for (double i = 0; i < layers; ++i, next *= 2, rows /= 2, columns /= 2)
                  all += (9 * std::exchange(channels, next) + 1) * next;
                return all + (channels * static_cast<double>(rows * columns) + 1) * width
                       + (width + 1) * static_cast<double>(shape.classes);
              }},
};

} // namespace

std::uint64_t parameter_count(const learner_config& config, const sample_shape& shape) {
  constexpr double most = 1e18;
  const auto* maker = find_named(makers, config.model);
  WAGGLE_CHECK(maker != nullptr, config.model);
  return static_cast<std::uint64_t>(
    std::min(most, maker->parameters(static_cast<double>(config.width),
                                     static_cast<double>(config.layers), config, shape)));
}

std::shared_ptr<classifier> make_classifier(const learner_config& config,
                                            const sample_shape& shape) {
  const auto* maker = find_named(makers, config.model);
  WAGGLE_CHECK(maker != nullptr, config.model);
  auto model = maker->make(config, shape);
  initialize(*model, config.init_seed);
  model->train();
  return model;
}

} // namespace waggle
