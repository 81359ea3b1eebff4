#include "runtime/training/plateau_learner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/forwarding_learner.hpp"

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

std::vector<state_tensor> with_own(const state_table& inner) {
  auto all = inner.tensors();
  auto buffers = std::find_if(all.begin(), all.end(), [](const state_tensor& t) {
    return t.what == state_tensor::kind::buffer || t.what == state_tensor::kind::metric;
  });
  all.insert(buffers, {"schedule/plateau", {plateau::value_count}, state_tensor::kind::statistic});
  all.push_back({"schedule/loss", {}, state_tensor::kind::metric});
  return all;
}

class plateau_learner : public forwarding_learner<learner> {
public:
  plateau_learner(std::unique_ptr<learner> inner, const plateau_rule& rule)
    : forwarding_learner(std::move(inner)), schedule_(rule),
      tensors_(with_own(this->inner().tensors())) {
    WAGGLE_CHECK(this->inner().tensors().metric_count() == 0, "two learners with metrics");
    while (tensors_[own_].name != "schedule/plateau")
      ++own_;
  }

  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override {
    return sha256_stream{}.add("waggle plateau 1").add(inner().schema().view()).finish();
  }

  /// The learner's own vectors are one value shorter than those of the rounds, so the pool is not
  /// for them.
  void use_vectors(std::shared_ptr<vector_pool> /*vectors*/) override {}

  micro_step accumulate() override {
    losses_.begin_pass(inner().accumulated_samples());
    auto step = inner().accumulate();
    if (!step.finite && step.lost > 0)
      losses_.drop();
    if (step.finite && step.samples > 0 && step.lost == 0)
      losses_.add(step.loss, step.samples);
    return step;
  }

  std::uint64_t take_mean_gradient(std::span<float> out) override {
    auto samples = inner().take_mean_gradient(out.first(inner().gradient_count()));
    out.back() = samples > 0 ? losses_.take() : 0;
    return samples;
  }
  mean_gradient take_mean_vector(vector_pool& vectors) override {
    if (tensors_.buffer_count() == 0)
      return learner::take_mean_vector(vectors);
    auto mean = inner().take_mean_vector(*shorter_); // the number of merges belongs to the buffers
    auto out = vectors.take(gradient_count());
    std::copy(mean.values->begin(), mean.values->end(), out->begin());
    out->back() = mean.samples > 0 ? losses_.take() : 0;
    mean.values = std::move(out);
    return mean;
  }
  std::uint64_t drop_gradient() override {
    losses_.drop();
    return inner().drop_gradient();
  }

  [[nodiscard]] bool waits_for_pass() const override {
    return inner().waits_for_pass() || losses_.is_due(inner().accumulated_samples());
  }

  /// Before the first reduction the rate is that of the schedule, which may warm up.
  void apply(std::span<const float> gradient, double lr) override {
    report_.rate_before = schedule_.reductions() > 0 ? schedule_.rate() : lr;
    inner().apply(gradient, report_.rate_before);
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

  void read_tensor(std::size_t which, std::span<float> out) const override {
    if (which == own_) {
      auto values = schedule_.encode();
      std::copy(values.begin(), values.end(), out.begin());
    } else if (which == metric()) {
      out.front() = loss_;
    } else {
      inner().read_tensor(at_inner(which), out);
    }
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    if (which == own_ || which == metric())
      return {};
    return inner().values_of(at_inner(which));
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    if (which == own_) {
      auto read = plateau::decode(schedule_.rule(), values);
      if (!read)
        throw std::runtime_error{"half a state was loaded: " + to_string(read.error())};
      schedule_ = *read;
      report_ = {};
      losses_.forget(); // they are of other parameters
    } else if (which == metric()) {
      loss_ = values.front();
    } else {
      inner().write_tensor(at_inner(which), values);
    }
  }
  status check_values(const byte_source& from, std::uint64_t at) const override {
    float values[plateau::value_count];
    auto begin = at + tensors_.header_bytes() + tensors_.offset(own_) * sizeof(float);
    if (auto read = from.read(begin, std::as_writable_bytes(std::span{values})); !read)
      return read;
    if (auto decoded = plateau::decode(schedule_.rule(), values); !decoded)
      return decoded.error();
    return done{};
  }

private:
  [[nodiscard]] std::size_t metric() const { return tensors_.size() - 1; }
  [[nodiscard]] std::size_t at_inner(std::size_t which) const {
    return which < own_ ? which : which - 1;
  }

protected:
  loss_mean losses_;

private:
  std::shared_ptr<vector_pool> shorter_ = vector_pool::make(1);
  // -- the computing thread
  plateau schedule_;
  float loss_ = 0; // of the last update
  plateau_report report_;
  // -- constant
  state_table tensors_;
  std::size_t own_ = 0; // the index of schedule/plateau
};

/// On top of a learner that can resume: the losses of the accumulated gradient are kept with it,
/// behind its sum.
class resumable_plateau_learner final : public plateau_learner, public resumable_learner {
public:
  using plateau_learner::plateau_learner;

  [[nodiscard]] std::string position() const override { return resumed().position(); }
  [[nodiscard]] std::string taken_position() const override { return resumed().taken_position(); }
  status load_position(std::string_view position) override {
    return resumed().load_position(position);
  }
  [[nodiscard]] partial_gradient copy_gradient() const override {
    auto partial = resumed().copy_gradient();
    if (partial.samples == 0)
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
    if (auto loaded = resumed().load_gradient(own); !loaded)
      return loaded;
    // Of samples whose gradient was dropped while their pass ended: no loss is known.
    if (losses.samples <= partial.samples)
      losses_.load(losses);
    return done{};
  }

private:
  static constexpr std::size_t values_of_losses = sizeof(loss_mean::sums) / sizeof(float);

  [[nodiscard]] resumable_learner& resumed() const { return *resumable_of(wrapped()); }
};

} // namespace

learner_factory with_plateau(learner_factory make, std::optional<plateau_rule> rule) {
  if (!rule)
    return make;
  return [make = std::move(make), rule = *rule]() -> result<std::unique_ptr<learner>> {
    auto inner = make();
    if (!inner)
      return inner.error();
    if (resumable_of(**inner) != nullptr)
      return std::unique_ptr<learner>{
        std::make_unique<resumable_plateau_learner>(std::move(*inner), rule)};
    return std::unique_ptr<learner>{std::make_unique<plateau_learner>(std::move(*inner), rule)};
  };
}

} // namespace waggle
