#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "runtime/core/check.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"

namespace waggle {

namespace {

/// The mean loss of the passes since it was last taken. Thread-safe.
class loss_mean {
public:
  struct sums {
    double loss; // the sum of all samples' losses
    std::uint64_t samples;
  };
  [[nodiscard]] sums copy() const {
    std::lock_guard lock{mutex_};
    return {sum_, samples_};
  }
  void load(const sums& from) {
    std::lock_guard lock{mutex_};
    sum_ = from.loss;
    samples_ = from.samples;
  }
  /// A pass begins. `accumulated`: the samples in the gradient, of which some losses may never
  /// come.
  void begin_pass(std::uint64_t accumulated) {
    std::lock_guard lock{mutex_};
    unknown_ = accumulated - std::min(accumulated, samples_);
  }
  void add(double loss, std::uint64_t samples) {
    std::lock_guard lock{mutex_};
    sum_ += loss * static_cast<double>(samples);
    samples_ += samples;
    last_ = loss;
  }
  /// Of a pass that has no loss.
  void add_unknown(std::uint64_t samples) {
    std::lock_guard lock{mutex_};
    unknown_ += samples;
  }
  void drop() {
    std::lock_guard lock{mutex_};
    clear();
  }
  void forget() {
    std::lock_guard lock{mutex_};
    clear();
    last_.reset();
  }
  /// Whether the pass that runs is among the `accumulated` samples, and its loss is not here yet:
  /// some instructions of its thread are between the two.
  [[nodiscard]] bool is_due(std::uint64_t accumulated) const {
    std::lock_guard lock{mutex_};
    return accumulated > samples_ + unknown_;
  }
  /// Of the gradient that was just taken.
  float take() {
    std::lock_guard lock{mutex_};
    auto mean =
      samples_ > 0 ? sum_ / static_cast<double>(samples_) : last_.value_or(plateau::unknown_loss);
    clear();
    return std::abs(mean) < plateau::known_loss_max ? static_cast<float>(mean)
                                                    : plateau::unknown_loss;
  }

private:
  void clear() {
    sum_ = 0;
    samples_ = 0;
    unknown_ = 0;
  }

  mutable std::mutex mutex_;
  double sum_ = 0;
  std::uint64_t samples_ = 0;
  std::uint64_t unknown_ = 0; // in the gradient, without a loss
  std::optional<double> last_;
};

/// With one below that can resume, the losses of the accumulated gradient are kept with it, behind
/// its sum.
class plateau_learner final : public learner_layer {
public:
  plateau_learner(std::unique_ptr<learner> below, const plateau_rule& rule)
    : learner_layer(std::move(below),
                    {coded_tensor(
                       {"schedule/plateau", {plateau::value_count}, state_tensor::kind::statistic},
                       [this] { return schedule_.encode(); },
                       [rule](auto values) { return plateau::decode(rule, values); },
                       [this](const plateau& loaded) {
                         schedule_ = loaded;
                         report_ = {};
                         losses_.forget(); // they are of other parameters
                       }),
                     kept_tensor({"schedule/loss", {}, state_tensor::kind::metric},
                                 [this] {
                                   return std::span{&loss_, 1};
                                 })},
                    "waggle plateau 1"),
      schedule_(rule) {
    WAGGLE_CHECK(this->below().tensors().metric_count() == 0, "two learners with metrics");
  }

  /// The learner's own vectors are one value shorter than those of the rounds, so the pool is not
  /// for them.
  void use_vectors(std::shared_ptr<vector_pool> /*vectors*/) override {}

  micro_step accumulate() override {
    losses_.begin_pass(below().accumulated_samples());
    auto step = below().accumulate();
    if (step.lost > 0) // with all that was in the sum
      losses_.drop();
    if (step.finite && step.samples > 0 && step.lost == 0) {
      if (std::isnan(step.loss))
        losses_.add_unknown(step.samples);
      else
        losses_.add(step.loss, step.samples);
    }
    return step;
  }

  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    auto mean = below().take_mean_vector(vectors, room + 1);
    (*mean.values)[gradient_count() - 1] = mean.samples > 0 ? losses_.take() : 0;
    return mean;
  }
  std::uint64_t drop_gradient() override {
    losses_.drop();
    return below().drop_gradient();
  }

  [[nodiscard]] learner_abilities abilities() const override {
    auto can = below().abilities();
    can.steps_locally = false; // each peer would have a rate of its own
    return can;
  }
  [[nodiscard]] bool waits_for_pass() const override {
    return below().waits_for_pass() || losses_.is_due(below().accumulated_samples());
  }

  void take_metrics(std::span<const float> means, epoch_id epoch) override {
    loss_ = means.back();
    report_.loss = loss_;
    report_.lowered = epoch >= schedule_.rule().begins && schedule_.advance(loss_);
  }
  [[nodiscard]] std::optional<plateau_report> plateau_state() const override {
    auto report = report_;
    report.reductions = schedule_.reductions();
    report.rate = schedule_.rate();
    report.best = schedule_.best();
    return report;
  }

  [[nodiscard]] partial_gradient copy_gradient() const override {
    auto partial = below().copy_gradient();
    if (!partial.sum)
      return partial;
    auto sum = std::make_shared<float_vector>(partial.sum->size() + values_of_losses);
    std::copy(partial.sum->begin(), partial.sum->end(), sum->begin());
    auto losses = losses_.copy();
    std::memcpy(sum->data() + partial.sum->size(), &losses, sizeof losses);
    partial.sum = std::move(sum);
    return partial;
  }
  status load_gradient(const partial_gradient& partial) override {
    if (!partial.sum || partial.sum->size() < values_of_losses)
      return failure{ec::malformed, "another length"};
    auto own = partial;
    auto length = partial.sum->size() - values_of_losses;
    own.sum = std::make_shared<float_vector>(
      partial.sum->begin(), partial.sum->begin() + static_cast<std::ptrdiff_t>(length));
    loss_mean::sums losses{};
    std::memcpy(&losses, partial.sum->data() + length, sizeof losses);
    if (!std::isfinite(losses.loss))
      return failure{ec::malformed, "impossible losses"};
    if (auto loaded = below().load_gradient(own); !loaded)
      return loaded;
    // Of samples whose gradient was dropped while their pass ended: no loss is known.
    if (losses.samples <= partial.samples)
      losses_.load(losses);
    return done{};
  }

protected:
  /// Before the first reduction the rate is that of the schedule, which may warm up.
  void before_update(update& next) override {
    if (schedule_.reductions() > 0)
      next.lr = schedule_.rate();
    report_.rate_before = next.lr;
  }

private:
  static constexpr std::size_t values_of_losses = sizeof(loss_mean::sums) / sizeof(float);

  loss_mean losses_;
  // -- the computing thread
  plateau schedule_;
  float loss_ = 0; // of the last update
  plateau_report report_;
};

} // namespace

learner_factory with_plateau(learner_factory make, std::optional<plateau_rule> rule) {
  return rule ? layered<plateau_learner>(std::move(make), "", *rule) : make;
}

} // namespace waggle
