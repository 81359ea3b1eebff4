#pragma once

// This file is long: it is one class, whose methods share what its mutex guards.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/local_learner.hpp"
#include "runtime/training/plateau.hpp"
#include "runtime/training/resumable_learner.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

/// The numbers of the outer optimizer: SGD with momentum, whose gradient is the mean progress of
/// the peers (DiLoCo, arXiv:2311.08105).
struct outer_rule {
  double rate = 0.7;
  double momentum = 0.9; // 0: none is kept
  bool nesterov = true;
  /// θ may be drawn towards the new anchor instead (lane_merge::rule::blend): by the share that
  /// `apply` gets as its rate, unless that is 0.
  bool blends = false;
};

/// A learner of which the run shares an anchor: the parameters after the last outer step. The
/// parameters θ of the local_learner inside are the peer's own and move with each pass.
///
/// - The parameters of the table are the anchor's, behind them the outer momentum
///   ("outer/momentum/w" of w). The inner optimizer's statistics are those of the peer that wrote
///   the state, and θ itself is in no state.
/// - The gradient that is taken is the progress anchor − θ, between two steps. θ keeps what it
///   learns after that: an update moves it by the new anchor minus its own copy (INV-5).
/// - With mean Δ: v ← momentum · v + Δ; anchor ← anchor − rate · (Δ + momentum · v), or − rate · v
///   without Nesterov. A peer alone, at rate 1 and without momentum, takes its copy of θ as it is.
/// - A state that is loaded moves θ by the difference of the anchors, so that progress stays; a
///   gradient that is dropped makes θ the anchor.
///
/// A strategy may derive from it and add tensors of its own: `shared`, which all peers of an epoch
/// hold equally, and a metric at the end, the mean loss of the samples in the progress.
///
/// Vectors have the values of `moved_`: the parameters, and behind them, where they are of no use,
/// zeros for the buffers.
class anchored_learner : public stepping_learner, public wraps_learner {
public:
  anchored_learner(std::unique_ptr<local_learner> inner, const outer_rule& rule,
                   std::vector<state_tensor> shared = {})
    : inner_(std::move(inner)), rule_(rule), tensors_(with_outer(inner_->tensors(), rule, shared)),
      moved_(moved_tensors(inner_->tensors())), shared_(shared.size()),
      anchor_(moved_->tensor_value_count()), momentum_(rule.momentum != 0 ? parameter_count() : 0) {
    while (parameters_ < tensors_.size()
           && tensors_[parameters_].what == state_tensor::kind::parameter)
      ++parameters_;
    outer_ = rule.momentum != 0 ? parameters_ : 0;
    copy_inner(anchor_);
  }

  [[nodiscard]] learner& wrapped() const override { return *inner_; }
  void use_vectors(std::shared_ptr<vector_pool> /*vectors*/) override {} // of another length

  micro_step accumulate() override {
    settle_drop();
    auto step = inner_->accumulate();
    loss_of_pass_ = step.loss;
    return step;
  }
  void step_locally(double lr) override {
    std::unique_lock lock{
      mutex_};      // a copy of θ has the steps of the samples that count, and no more
    while (drop_) { // since the pass began
      lock.unlock();
      settle_drop();
      lock.lock();
    }
    auto samples = inner_->accumulated_samples();
    inner_->step_locally(lr);
    samples_ += samples;
    losses_ += loss_of_pass_ * static_cast<double>(samples);
    merges_in_copy_ = merges_;
    note_position();
  }
  void apply(std::span<const float> mean, double lr) override {
    settle_drop();
    auto before = begin_move(mean);
    if (rule_.blends && lr > 0) {
      copy_inner(before);
      auto blended = before;
      for (std::size_t i = 0; i < blended.size(); ++i)
        blended[i] = moved_towards(before[i], anchor_[i], lr);
      inner_->add_change(moved_->indices(), blended, before);
    } else {
      inner_->add_change(moved_->indices(), anchor_, before);
    }
    end_move();
  }
  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    inner_->merge_buffers(mean, contributed);
    std::lock_guard lock{mutex_};
    ++merges_;
  }

  void read_tensor(std::size_t which, std::span<float> out) const override {
    if (is_inner(which))
      return inner_->read_tensor(which - outer_ - shared_, out);
    if (which >= parameters_ + outer_)
      return read_own(which, out);
    auto from = values_of(which);
    std::copy(from.begin(), from.end(), out.begin());
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    if (is_inner(which))
      return inner_->values_of(which - outer_ - shared_);
    if (which >= parameters_ + outer_)
      return {};
    auto begin = static_cast<std::size_t>(tensors_.offset(which));
    auto length = static_cast<std::size_t>(tensors_[which].elements());
    if (which < parameters_)
      return std::span<const float>{anchor_}.subspan(begin, length);
    return std::span<const float>{momentum_}.subspan(begin - parameter_count(), length);
  }
  /// A state is being loaded; `set_optimizer_steps` ends it.
  void write_tensor(std::size_t which, std::span<const float> values) override {
    if (is_inner(which))
      return inner_->write_tensor(which - outer_ - shared_, values);
    if (which >= parameters_ + outer_)
      return write_own(which, values);
    std::lock_guard lock{mutex_};
    moves_ = true;
    auto begin = static_cast<std::size_t>(tensors_.offset(which));
    if (which < parameters_ && !loads_from_)
      loads_from_ = anchor_;
    auto& to = which < parameters_ ? anchor_ : momentum_;
    std::copy(
      values.begin(), values.end(),
      to.begin()
        + static_cast<std::ptrdiff_t>(which < parameters_ ? begin : begin - parameter_count()));
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return inner_->optimizer_steps(); }
  void set_optimizer_steps(std::uint64_t steps) override {
    std::optional<float_vector> before;
    std::optional<float_vector> dropped;
    {
      std::lock_guard lock{mutex_};
      flight_.reset();
      before = std::exchange(loads_from_, std::nullopt);
      if (drop_to_) // progress without the steps that were dropped
        dropped = std::exchange(drop_to_, std::nullopt);
      else if (samples_ == 0 || drop_)
        before.reset();
      drop_ = false;
    }
    if (!before || dropped)
      write_parameters(dropped ? *dropped : anchor_);
    inner_->set_optimizer_steps(steps);
    if (before)
      inner_->add_change(moved_->indices(), anchor_, *before);
    end_move();
  }
  [[nodiscard]] std::string own_state() const override { return inner_->own_state(); }
  status load_own_state(std::string_view own) override { return inner_->load_own_state(own); }

  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override {
    return sha256_stream{}
      .add(rule_.momentum != 0 ? "waggle anchor with momentum 1" : "waggle anchor 1")
      .add(inner_->schema().view())
      .finish();
  }
  mean_gradient take_mean_vector(vector_pool& vectors) override {
    auto out = vectors.take(gradient_count());
    auto taken = take(*out, out);
    return {std::move(out), taken.samples, taken.merges};
  }
  std::uint64_t take_mean_gradient(std::span<float> out) override { return take(out).samples; }
  std::uint64_t take_back() override {
    std::lock_guard lock{mutex_};
    if (!flight_)
      return 0;
    auto samples = flight_->samples;
    if (drop_) // undo the steps after it only
      drop_to_ = std::move(flight_->theta);
    samples_ += samples;
    losses_ += flight_->losses;
    flight_.reset();
    return samples;
  }
  std::uint64_t drop_gradient() override {
    std::lock_guard lock{mutex_};
    drop_ = drop_ || samples_ > 0;
    drop_to_.reset();
    note_position();
    taken_position_ = position_;
    losses_ = 0;
    return samples_.exchange(0);
  }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return samples_; }
  [[nodiscard]] bool waits_for_pass() const override { return !inner_->copies_during_passes(); }

protected:
  // -- the tensors of a derived learner: `shared`, and the metric
  virtual void read_own(std::size_t /*which*/, std::span<float> /*out*/) const {}
  virtual void write_own(std::size_t /*which*/, std::span<const float> /*values*/) {}

  [[nodiscard]] resumable_learner& resumed() const { return *resumable_of(*inner_); }
  [[nodiscard]] std::string position_when_taken() const {
    std::lock_guard lock{mutex_};
    return taken_position_;
  }

  /// θ, and, if a round has a copy of it, this copy, too. The computing thread, while no pass runs.
  [[nodiscard]] partial_gradient copy_progress() const {
    std::lock_guard lock{mutex_};
    if (samples_ == 0)
      return {};
    auto count = parameter_count();
    auto both = std::make_shared<float_vector>((flight_ ? 2 : 1) * count + values_of_losses());
    float_vector theta(moved_->tensor_value_count());
    copy_inner(theta);
    std::copy_n(theta.begin(), count, both->begin());
    if (flight_)
      std::copy_n(flight_->theta.begin(), count,
                  both->begin() + static_cast<std::ptrdiff_t>(count));
    const double losses[2] = {losses_, flight_ ? flight_->losses : 0};
    if (has_metric())
      std::memcpy(both->data() + both->size() - values_of_losses(), losses, sizeof losses);
    // No loss is scaled here: the place of its scale holds the samples of the round's copy.
    auto in_flight = flight_ ? static_cast<double>(flight_->samples) : 1;
    return {std::move(both), samples_.load(), 0, in_flight};
  }
  status load_progress(const partial_gradient& partial) {
    auto count = parameter_count();
    auto length = partial.sum ? partial.sum->size() : 0;
    double losses[2] = {0, 0}; // since the copy, and those of the copy
    if (has_metric() && length > values_of_losses()) {
      length -= values_of_losses();
      std::memcpy(losses, partial.sum->data() + length, sizeof losses);
    }
    if (!std::isfinite(losses[0]) || !std::isfinite(losses[1])
        || (length != count && length != 2 * count))
      return failure{ec::malformed, "another length"};
    write_parameters(*partial.sum);
    inner_->set_optimizer_steps(inner_->optimizer_steps());
    std::lock_guard lock{mutex_};
    samples_ = partial.samples;
    losses_ = losses[0];
    note_position();
    if (length == count)
      return done{};
    flight_.emplace();
    flight_->theta.assign(partial.sum->begin() + static_cast<std::ptrdiff_t>(count),
                          partial.sum->begin() + static_cast<std::ptrdiff_t>(length));
    flight_->theta.resize(moved_->tensor_value_count());
    flight_->samples = static_cast<std::uint64_t>(std::clamp(partial.scale, 0.0, 0x1p40));
    flight_->losses = losses[1];
    return done{};
  }

  mutable std::mutex mutex_; // locked before the inner learner's

private:
  static state_table with_outer(const state_table& inner, const outer_rule& rule,
                                const std::vector<state_tensor>& shared) {
    auto all = inner.tensors();
    auto statistics = std::find_if(all.begin(), all.end(), [](const state_tensor& t) {
      return t.what != state_tensor::kind::parameter;
    });
    std::vector<state_tensor> outer;
    for (auto p = all.begin(); rule.momentum != 0 && p != statistics; ++p)
      outer.push_back({"outer/momentum/" + p->name, p->shape, state_tensor::kind::outer});
    outer.insert(outer.end(), shared.begin(), shared.end());
    all.insert(statistics, outer.begin(), outer.end());
    if (!shared.empty())
      all.push_back({"schedule/loss", {}, state_tensor::kind::metric});
    return state_table{std::move(all)};
  }

  /// The tensors of the inner learner that are copied and moved together: parameters and buffers.
  static std::shared_ptr<const averaged_tensors> moved_tensors(const state_table& inner) {
    lane parameters;
    parameters.what = lane_content::parameters;
    auto found = averaged_tensors::of(inner, parameters);
    WAGGLE_CHECK(found.ok(), "parameters can always be averaged");
    return *found;
  }

  /// Progress that a round averages.
  struct flight {
    float_vector theta; // when it was taken
    std::uint64_t samples = 0;
    std::shared_ptr<const float_vector> given; // what was taken; null: not known any more
    double losses = 0;                         // the sum of its samples' losses
  };

  [[nodiscard]] std::size_t values_of_losses() const {
    return has_metric() ? 2 * sizeof(double) / sizeof(float) : 0;
  }
  [[nodiscard]] bool has_metric() const { return tensors_.metric_count() > 0; }
  /// Whether a tensor of the table is one of the inner learner.
  [[nodiscard]] bool is_inner(std::size_t which) const {
    return which >= parameters_ + outer_ + shared_
           && !(has_metric() && which + 1 == tensors_.size());
  }

  /// Without the buffers. Any thread that holds `mutex_`, or before others know this learner.
  void copy_inner(std::span<float> out) const {
    inner_->copy_tensors(moved_->indices(), out);
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(parameter_count()), out.end(), 0.0F);
  }
  void write_parameters(std::span<const float> values) {
    for (std::size_t i = 0; i < parameters_; ++i)
      inner_->write_tensor(i, values.subspan(static_cast<std::size_t>(tensors_.offset(i)),
                                             static_cast<std::size_t>(tensors_[i].elements())));
  }
  void note_position() {
    if (auto* resumes = resumable_of(*inner_))
      position_ = resumes->position();
  }

  struct taken {
    std::uint64_t samples = 0;
    std::uint64_t merges = 0;
  };
  /// Waits for a step at most. While θ moves, which may take until a user's loop comes back,
  /// nothing is contributed, and what was accumulated stays.
  taken take(std::span<float> out, std::shared_ptr<const float_vector> given = nullptr) {
    std::lock_guard lock{mutex_};
    if (samples_ == 0 || moves_ || drop_ || flight_) {
      std::fill(out.begin(), out.end(), 0.0F);
      return {};
    }
    flight made{float_vector(moved_->tensor_value_count()), samples_.load(), std::move(given)};
    inner_->copy_tensors(moved_->indices(), made.theta);
    made.losses = std::exchange(losses_, 0);
    if (has_metric()) {
      auto loss = made.losses / static_cast<double>(made.samples);
      out.back() =
        std::abs(loss) < plateau::known_loss_max ? static_cast<float>(loss) : plateau::unknown_loss;
    }
    auto count = parameter_count();
    for (std::size_t i = 0; i < count; ++i)
      out[i] = anchor_[i] - made.theta[i];
    std::copy(made.theta.begin() + static_cast<std::ptrdiff_t>(count), made.theta.end(),
              out.begin() + static_cast<std::ptrdiff_t>(count));
    std::fill(made.theta.begin() + static_cast<std::ptrdiff_t>(count), made.theta.end(), 0.0F);
    flight_ = std::move(made);
    taken_position_ = position_;
    return {samples_.exchange(0), merges_in_copy_};
  }

  /// The outer step. Returns the parameters to which the old anchor, or what of θ is in the mean,
  /// belongs: θ moves by the difference.
  float_vector begin_move(std::span<const float> mean) {
    std::lock_guard lock{mutex_};
    moves_ = true;
    auto before = flight_ ? std::move(flight_->theta) : anchor_;
    // Nobody else took part in the round: it has returned the very vector.
    bool alone = flight_ && flight_->given && flight_->given->data() == mean.data();
    flight_.reset();
    if (alone && rule_.rate == 1 && rule_.momentum == 0)
      anchor_ = before;
    else
      outer_step(mean);
    return before;
  }
  void outer_step(std::span<const float> mean) {
    auto rate = static_cast<float>(rule_.rate);
    auto momentum = static_cast<float>(rule_.momentum);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      auto step = mean[i];
      if (!momentum_.empty()) {
        auto& v = momentum_[i] = momentum * momentum_[i] + mean[i];
        step = rule_.nesterov ? mean[i] + momentum * v : v;
      }
      anchor_[i] -= rate * step;
    }
  }
  void end_move() {
    std::lock_guard lock{mutex_};
    moves_ = false;
  }

  /// Undoes the steps whose samples were dropped: since the last round has copied θ, or all. By
  /// writing, because they may not be finite.
  void settle_drop() {
    float_vector back;
    {
      std::lock_guard lock{mutex_};
      if (!std::exchange(drop_, false))
        return;
      moves_ = true;
      back = drop_to_ ? *std::exchange(drop_to_, std::nullopt) : flight_ ? flight_->theta : anchor_;
    }
    write_parameters(back);
    reset_statistics();
    inner_->set_optimizer_steps(inner_->optimizer_steps());
    end_move();
  }

  /// With statistics that are not finite, the next step would spoil the parameters again.
  void reset_statistics() {
    float_vector values;
    for (std::size_t i = parameters_; i < inner_->tensors().size(); ++i) {
      const auto& tensor = inner_->tensors()[i];
      if (tensor.what != state_tensor::kind::statistic && tensor.what != state_tensor::kind::square)
        continue;
      values.resize(static_cast<std::size_t>(tensor.elements()));
      inner_->read_tensor(i, values);
      if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
        continue;
      std::fill(values.begin(), values.end(), 0.0F);
      inner_->write_tensor(i, values);
    }
  }

  const std::unique_ptr<local_learner> inner_;
  const outer_rule rule_;
  const state_table tensors_;
  const std::shared_ptr<const averaged_tensors> moved_;
  const std::size_t shared_;   // tensors of the derived learner that peers share
  std::size_t parameters_ = 0; // tensors of this kind
  std::size_t outer_ = 0;

  // Written by the computing thread while it holds mutex_.
  float_vector anchor_;
  float_vector momentum_;
  std::optional<float_vector> drop_to_;    // with drop_: the target, if the flight is taken back
  std::optional<float_vector> loads_from_; // the anchor before the state that is being loaded
  bool moves_ = false;                     // anchor and θ do not belong together at the moment
  // Guarded by mutex_.
  std::optional<flight> flight_;
  bool drop_ = false;        // the steps since then, or since the last update, are to be undone
  std::uint64_t merges_ = 0; // of buffers
  std::uint64_t merges_in_copy_ = 0;
  std::string position_; // after the last step
  std::string taken_position_;
  /// Of the steps in θ that no round has taken. Changed while mutex_ is held, which a step may hold
  /// for long; read at any time.
  std::atomic<std::uint64_t> samples_{0};
  double losses_ = 0;       // the sum of their losses; guarded by mutex_
  double loss_of_pass_ = 0; // the computing thread's
};

} // namespace waggle
