#include "tests/support/toy_learner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/core/check.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle::testing {

namespace {

std::vector<std::uint64_t> shape_of(const toy_options& o) {
  if (o.rows == 0)
    return {o.parameters};
  return {o.rows, o.parameters / o.rows};
}

/// As gradient_sum in place (trainer/gradient_sum.hpp): passes add to one vector, which becomes the
/// outgoing vector of the round. The next pass takes another one.
class vector_of_passes {
public:
  explicit vector_of_passes(std::size_t size) : size_(size) {}

  void use_vectors(std::shared_ptr<vector_pool> vectors) { vectors_ = std::move(vectors); }

  void begin_pass() {
    in_pass_ = true;
    dropped_ = false;
    if (!sum_)
      sum_ = vectors_ ? vectors_->take(size_) : std::make_shared<float_vector>(size_);
    if (passes_ == 0)
      std::fill(sum_->begin(), sum_->end(), 0.0F);
  }
  void add(std::size_t i, double value) { (*sum_)[i] += static_cast<float>(value); }
  /// Returns whether the sum was dropped while the pass ran, and with it this pass.
  bool end_pass() {
    in_pass_ = false;
    passes_ += dropped_ ? 0 : 1;
    return dropped_;
  }

  [[nodiscard]] std::uint64_t passes() const { return passes_; }
  [[nodiscard]] float at(std::size_t i) const {
    require_no_pass();
    return (*sum_)[i];
  }
  /// REQUIRES: there was a pass.
  std::shared_ptr<float_vector> take_mean(std::uint64_t samples) {
    require_no_pass();
    for (auto& v : *sum_)
      v /= static_cast<float>(samples);
    return std::exchange(sum_, nullptr);
  }
  void empty() {
    dropped_ = in_pass_;
    passes_ = 0;
  }
  [[nodiscard]] std::shared_ptr<const float_vector> copy() const {
    require_no_pass();
    return std::make_shared<float_vector>(*sum_);
  }
  void load(const float_vector& sum, std::uint64_t passes) {
    sum_ = std::make_shared<float_vector>(sum);
    passes_ = passes;
  }
  void require_no_pass() const {
    WAGGLE_CHECK(!in_pass_, "the gradient is taken in the middle of a pass");
  }

private:
  std::size_t size_;
  std::shared_ptr<vector_pool> vectors_; // null: use the heap
  std::shared_ptr<float_vector> sum_;    // none before the first pass, and after it was taken
  std::uint64_t passes_ = 0;
  bool in_pass_ = false;
  bool dropped_ = false; // since the running pass began
};

class toy_learner final : public learner {
public:
  explicit toy_learner(const toy_options& o)
    : options_(o), weights_(o.parameters), velocity_(o.parameters), squares_(o.parameters),
      running_mean_(o.parameters), sums_(o.parameters), truth_(o.parameters), data_(o.data_seed),
      tensors_(table_of(o)), reused_(gradient_count()) {
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

  void use_vectors(std::shared_ptr<vector_pool> vectors) override {
    reused_.use_vectors(std::move(vectors));
  }
  /// On one thread: an update can only be applied in options_.during_pass.
  [[nodiscard]] learner_abilities abilities() const override {
    return {.resumes = true,
            .steps_locally = true,
            .copies_during_passes = !options_.buffer,
            .passes_beside_updates = !options_.buffer,
            .adds_in_place = options_.in_place};
  }

  micro_step accumulate() override {
    auto weights = weights_; // an update may be applied while the pass runs
    if (options_.in_place)
      reused_.begin_pass();
    if (options_.during_pass)
      options_.during_pass();
    drawn_ += options_.micro_batch;
    double loss = 0;
    for (std::uint64_t b = 0; b < options_.micro_batch; ++b) {
      std::vector<double> x(weights_.size());
      double error = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = data_.unit() * 2 - 1;
        error += x[i] * (static_cast<double>(weights[i]) - static_cast<double>(truth_[i]));
      }
      loss += error * error / 2;
      last_input_ = x;
      for (std::size_t i = 0; i < x.size(); ++i)
        add(i, error * x[i]);
    }
    micro_step step{loss / static_cast<double>(options_.micro_batch), options_.micro_batch, true};
    bool dropped = options_.in_place && reused_.end_pass();
    (dropped ? step.lost : samples_) += step.samples;
    if (options_.buffer) {
      for (std::size_t i = 0; i < weights_.size(); ++i)
        running_mean_[i] = 0.9F * running_mean_[i] + 0.1F * static_cast<float>(last_input_[i]);
      offered_mean_ = running_mean_;
      offered_merges_ = merges_;
    }
    return step;
  }

  /// The gradient is computed as ever; time passes before each of its parts is there.
  micro_step accumulate_in_buckets(const early_gradient& when) override {
    if (!options_.before_bucket || samples_ > 0 || options_.in_place)
      return accumulate();
    auto step = accumulate();
    auto samples = std::exchange(samples_, 0);
    auto values = std::make_shared<float_vector>(sums_.size());
    early_ = {values, samples, 0, std::make_shared<filling>()};
    bool offered = false;
    for (auto left = toy_buckets; left-- > 0;) {
      options_.before_bucket();
      if (left == 0)
        step.finite = !options_.spoils || !options_.spoils();
      if (!step.finite)
        break;
      auto begin = sums_.size() * left / toy_buckets;
      auto end = sums_.size() * (left + 1) / toy_buckets;
      for (auto i = begin; i < end; ++i)
        (*values)[i] = static_cast<float>(sum(i) / static_cast<double>(samples));
      early_.fills->filled(begin, end);
      if (!offered && when.due()) {
        offered = true;
        samples_ = samples;
        when.offered();
      }
    }
    auto fills = std::exchange(early_, {}).fills;
    step.taken = offered && samples_ == 0;
    samples_ = step.taken || !step.finite ? 0 : samples;
    if (step.taken || !step.finite)
      std::fill(sums_.begin(), sums_.end(), 0.0);
    step.finite ? fills->complete() : fills->fail();
    return step;
  }

  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    if (early_.fills && samples_ > 0) {
      if (options_.taken_early != nullptr)
        ++*options_.taken_early;
      samples_ = 0;
      taken_ = drawn_;
      return early_;
    }
    if (!options_.in_place || samples_ == 0 || room > 0) {
      reused_.require_no_pass();
      auto out = vectors.take(gradient_count() + room);
      for (std::size_t i = 0; i < sums_.size(); ++i)
        (*out)[i] = samples_ == 0 ? 0 : static_cast<float>(sum(i) / static_cast<double>(samples_));
      write_buffers(*out);
      return {std::move(out), drop_gradient(), offered_merges_};
    }
    auto mean = reused_.take_mean(samples_);
    write_buffers(*mean);
    return {mean, drop_gradient(), offered_merges_};
  }
  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    learner::merge_buffers(mean, contributed);
    ++merges_;
  }
  /// In place, as LibTorch's learner in host memory.
  void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                  std::span<const float> snapshot) override {
    std::lock_guard lock{values_};
    change_tensors(tensors_, which, mean, snapshot,
                   [this](std::size_t i, auto change) { change(values_in(i)); });
    ++changes_;
  }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return samples_; }
  std::uint64_t drop_gradient() override {
    if (!early_.fills) // else the pass still reads them
      std::fill(sums_.begin(), sums_.end(), 0.0);
    reused_.empty();
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
    if (auto mean = take_mean_vector(*vector_pool::make(1), 0); mean.samples > 0)
      apply(std::span{*mean.values}.first(weights_.size()), lr);
  }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    std::ranges::copy(values_in(which), out.begin());
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    std::ranges::copy(values, values_in(which).begin());
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
    if (options_.in_place)
      return {reused_.copy(), samples_, reused_.passes(), 1};
    auto bytes = std::make_shared<float_vector>(2 * sums_.size());
    std::memcpy(bytes->data(), sums_.data(), sums_.size() * sizeof(double));
    return {bytes, samples_, 0, 1};
  }
  status load_gradient(const partial_gradient& partial) override {
    auto length = options_.in_place ? gradient_count() : 2 * sums_.size();
    if (!partial.sum || partial.sum->size() != length || (partial.passes > 0) != options_.in_place)
      return failure{ec::malformed, "another length"};
    if (options_.in_place)
      reused_.load(*partial.sum, partial.passes);
    else
      std::memcpy(sums_.data(), partial.sum->data(), sums_.size() * sizeof(double));
    samples_ = partial.samples;
    offered_mean_ = running_mean_;
    return done{};
  }

private:
  void add(std::size_t i, double value) {
    if (options_.in_place)
      reused_.add(i, value);
    else
      sums_[i] += value;
  }
  [[nodiscard]] double sum(std::size_t i) const {
    return options_.in_place ? static_cast<double>(reused_.at(i)) : sums_[i];
  }
  /// Behind the gradient.
  void write_buffers(std::span<float> out) const {
    if (options_.buffer)
      for (std::size_t i = 0; i < sums_.size(); ++i)
        out[sums_.size() + i] = samples_ == 0 ? 0 : offered_mean_[i];
  }

  /// The values of a tensor of the table.
  template <class Self>
  static auto values_of(Self& self, std::size_t which) {
    auto group = which / self.options_.tensors;
    auto& all = self.tensors_[which].what == state_tensor::kind::buffer ? self.running_mean_
                : group == 0                                            ? self.weights_
                : group == 1                                            ? self.velocity_
                                                                        : self.squares_;
    auto k = which % self.options_.tensors;
    auto of = all.size() == self.tensors_[which].elements() ? 0 : begin_of(self.options_, k);
    return std::span{all}.subspan(of, self.tensors_[which].elements());
  }
  [[nodiscard]] std::span<float> values_in(std::size_t which) { return values_of(*this, which); }
  [[nodiscard]] std::span<const float> values_in(std::size_t which) const {
    return values_of(*this, which);
  }
  /// The first value of parameter k.
  static std::size_t begin_of(const toy_options& o, std::size_t k) {
    return o.parameters * k / o.tensors;
  }

  static std::vector<state_tensor> table_of(const toy_options& o) {
    std::vector<state_tensor> all;
    auto add = [&](const std::string& name, state_tensor::kind what) {
      for (std::size_t k = 0; k < o.tensors; ++k)
        if (o.tensors == 1)
          all.push_back({name, shape_of(o), what});
        else
          all.push_back({name + std::to_string(k), {begin_of(o, k + 1) - begin_of(o, k)}, what});
    };
    add("weights", state_tensor::kind::parameter);
    if (o.adam) {
      add("exp_avg/weights", state_tensor::kind::statistic);
      add("exp_avg_sq/weights", state_tensor::kind::square);
    } else {
      add("momentum_buffer/weights", state_tensor::kind::statistic);
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
  mean_gradient early_; // of the pass that runs, if it is computed in buckets
  std::vector<float> truth_;
  random_source data_;
  std::uint64_t samples_ = 0;
  std::uint64_t drawn_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t steps_ = 0;
  state_table tensors_;
  vector_of_passes reused_; // instead of sums_, with options_.in_place
};

} // namespace

std::unique_ptr<learner> make_toy_learner(const toy_options& options) {
  return std::make_unique<toy_learner>(options);
}

} // namespace waggle::testing
