#include "tests/support/toy_learner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/resumable_learner.hpp"

namespace waggle::testing {

namespace {

std::vector<std::uint64_t> shape_of(const toy_options& o) {
  if (o.rows == 0)
    return {o.parameters};
  return {o.rows, o.parameters / o.rows};
}

class toy_learner final : public local_learner, public resumable_learner {
public:
  explicit toy_learner(const toy_options& o)
    : options_(o), weights_(o.parameters), velocity_(o.parameters), squares_(o.parameters),
      running_mean_(o.parameters), sums_(o.parameters), truth_(o.parameters), data_(o.data_seed),
      tensors_(table_of(o)) {
    random_source init{o.init_seed};
    for (auto& w : weights_)
      w = static_cast<float>(init.unit() - 0.5);
    random_source world{20};
    for (auto& t : truth_)
      t = static_cast<float>(world.unit() * 2 - 1);
  }

  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override {
    return sha256("toy/" + std::to_string(weights_.size()) + "/"
                  + (options_.adam ? "adam" : std::to_string(options_.momentum)));
  }

  /// Nothing runs at the same time in the tests that use it.
  [[nodiscard]] bool passes_beside_updates() const override { return !options_.buffer; }

  micro_step accumulate() override {
    drawn_ += options_.micro_batch;
    double loss = 0;
    for (std::uint64_t b = 0; b < options_.micro_batch; ++b) {
      std::vector<double> x(weights_.size());
      double error = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = data_.unit() * 2 - 1;
        error += x[i] * (static_cast<double>(weights_[i]) - static_cast<double>(truth_[i]));
      }
      loss += error * error / 2;
      last_input_ = x;
      for (std::size_t i = 0; i < x.size(); ++i)
        sums_[i] += error * x[i];
    }
    samples_ += options_.micro_batch;
    if (options_.buffer) {
      for (std::size_t i = 0; i < weights_.size(); ++i)
        running_mean_[i] = 0.9F * running_mean_[i] + 0.1F * static_cast<float>(last_input_[i]);
      offered_mean_ = running_mean_;
      offered_merges_ = merges_;
    }
    return {loss / static_cast<double>(options_.micro_batch), options_.micro_batch, true};
  }

  std::uint64_t take_mean_gradient(std::span<float> out) override {
    for (std::size_t i = 0; i < sums_.size(); ++i)
      out[i] = samples_ == 0 ? 0 : static_cast<float>(sums_[i] / static_cast<double>(samples_));
    if (options_.buffer)
      for (std::size_t i = 0; i < sums_.size(); ++i)
        out[sums_.size() + i] = samples_ == 0 ? 0 : offered_mean_[i];
    return drop_gradient();
  }
  mean_gradient take_mean_vector(vector_pool& vectors) override {
    auto mean = learner::take_mean_vector(vectors);
    mean.merges = offered_merges_;
    return mean;
  }
  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    learner::merge_buffers(mean, contributed);
    ++merges_;
  }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return samples_; }
  std::uint64_t drop_gradient() override {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    taken_ = drawn_;
    return std::exchange(samples_, 0);
  }

  void apply(std::span<const float> gradient, double lr) override {
    if (options_.frozen && *options_.frozen)
      return;
    ++steps_;
    if (options_.adam)
      return apply_adam(gradient, lr);
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      velocity_[i] = static_cast<float>(options_.momentum) * velocity_[i] + gradient[i];
      weights_[i] -= static_cast<float>(lr) * velocity_[i];
    }
  }

  void step_locally(double lr) override {
    std::vector<float> mean(gradient_count());
    if (take_mean_gradient(mean) > 0)
      apply(std::span{mean}.first(weights_.size()), lr);
  }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    const auto& values = this->*tensor(which);
    std::copy(values.begin(), values.end(), out.begin());
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    auto& to = this->*tensor(which);
    std::copy(values.begin(), values.end(), to.begin());
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return steps_; }
  void set_optimizer_steps(std::uint64_t steps) override { steps_ = steps; }

  [[nodiscard]] std::string position() const override { return std::to_string(drawn_); }
  [[nodiscard]] std::string taken_position() const override { return std::to_string(taken_); }
  status load_position(std::string_view position) override {
    if (position.find_first_not_of("0123456789") != std::string_view::npos)
      return failure{ec::malformed, "no number"};
    data_ = random_source{options_.data_seed};
    drawn_ = taken_ = std::stoull(std::string{position});
    for (std::uint64_t i = 0; i < drawn_ * weights_.size(); ++i)
      (void)data_.unit();
    return done{};
  }
  /// As bytes: the sums are of higher precision than what is averaged.
  [[nodiscard]] partial_gradient copy_gradient() const override {
    if (samples_ == 0)
      return {};
    auto bytes = std::make_shared<float_vector>(2 * sums_.size());
    std::memcpy(bytes->data(), sums_.data(), sums_.size() * sizeof(double));
    return {bytes, samples_, 0, 1};
  }
  status load_gradient(const partial_gradient& partial) override {
    if (!partial.sum || partial.sum->size() != 2 * sums_.size())
      return failure{ec::malformed, "another length"};
    std::memcpy(sums_.data(), partial.sum->data(), sums_.size() * sizeof(double));
    samples_ = partial.samples;
    offered_mean_ = running_mean_;
    return done{};
  }

private:
  /// The member with the values of a tensor of the table.
  [[nodiscard]] std::vector<float> toy_learner::*tensor(std::size_t which) const {
    if (tensors_[which].what == state_tensor::kind::buffer)
      return &toy_learner::running_mean_;
    return which == 0   ? &toy_learner::weights_
           : which == 1 ? &toy_learner::velocity_
                        : &toy_learner::squares_;
  }

  static std::vector<state_tensor> table_of(const toy_options& o) {
    auto row = [&](const char* name, state_tensor::kind what) {
      return state_tensor{name, shape_of(o), what};
    };
    std::vector<state_tensor> all{row("weights", state_tensor::kind::parameter)};
    if (o.adam) {
      all.push_back(row("exp_avg/weights", state_tensor::kind::statistic));
      all.push_back(row("exp_avg_sq/weights", state_tensor::kind::square));
    } else {
      all.push_back(row("momentum_buffer/weights", state_tensor::kind::statistic));
    }
    if (o.buffer)
      all.push_back({"running_mean", {o.parameters}, state_tensor::kind::buffer});
    return all;
  }

  void apply_adam(std::span<const float> gradient, double lr) {
    constexpr double beta1 = 0.9;
    constexpr double beta2 = 0.999;
    auto t = static_cast<double>(steps_);
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      double g = gradient[i];
      velocity_[i] = static_cast<float>(beta1 * velocity_[i] + (1 - beta1) * g);
      squares_[i] = static_cast<float>(beta2 * squares_[i] + (1 - beta2) * g * g);
      auto mean = velocity_[i] / (1 - std::pow(beta1, t));
      auto square = squares_[i] / (1 - std::pow(beta2, t));
      weights_[i] -= static_cast<float>(lr * mean / (std::sqrt(square) + 1e-8));
    }
  }

  toy_options options_;
  std::vector<float> weights_;
  std::vector<float> velocity_; // of Adam: the mean of the gradient
  std::vector<float> squares_;  // of Adam
  std::vector<float> running_mean_;
  std::vector<float> offered_mean_; // after the last pass
  std::uint64_t merges_ = 0;
  std::uint64_t offered_merges_ = 0;
  std::vector<double> last_input_;
  std::vector<double> sums_;
  std::vector<float> truth_;
  random_source data_;
  std::uint64_t samples_ = 0;
  std::uint64_t drawn_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t steps_ = 0;
  state_table tensors_;
};

} // namespace

std::unique_ptr<local_learner> make_toy_learner(const toy_options& options) {
  return std::make_unique<toy_learner>(options);
}

} // namespace waggle::testing
