#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/check.hpp"
#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/learner_layer.hpp"
#include "runtime/training/shared_parameters.hpp"
#include "runtime/training/strategies/progress_in_flight.hpp"
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
  /// Above 0, an update makes θ alpha · θ + (1 − alpha) · anchor (Streaming DiLoCo, 2501.18512),
  /// instead of adding to it what the anchor has moved by.
  double alpha = 0;
  std::size_t fragments = 1; // lane::fragments
};

/// A learner of which the run shares an anchor: the parameters after the last outer step. The
/// parameters θ of the learner below are the peer's own and move with each pass.
///
/// - The parameters of the table are the anchor's, behind them the outer momentum
///   ("outer/momentum/w" of w). The inner optimizer's statistics are those of the peer that wrote
///   the state, and θ itself is in no state.
/// - The gradient that is taken is the progress anchor − θ, between two steps. θ keeps what it
///   learns after that: an update moves it by the new anchor minus its own copy (INV-5), unless
///   `alpha` is above 0.
/// - With mean Δ: v ← momentum · v + Δ; anchor ← anchor − rate · (Δ + momentum · v), or − rate · v
///   without Nesterov. A peer alone, at rate 1 and without momentum, takes its copy of θ as it is.
/// - Of fragments, the vector of an epoch has one, and only this one moves with its update.
/// - A state that is loaded moves θ by the difference of the anchors, so that progress stays; a
///   gradient that is dropped makes θ the anchor.
///
/// A strategy without momentum may derive from it and add tensors of its own: those that all peers
/// of an epoch hold equally, and at the end a metric with the losses of the samples in the progress
/// (known_losses::per_sample).
///
/// Vectors have the values of `all_moved_`, or of a fragment's `moved_`: parameters, and behind
/// them, where they are of no use, zeros for the buffers.
class anchored_learner : public learner_layer {
public:
  anchored_learner(std::unique_ptr<learner> below, const outer_rule& rule,
                   std::vector<own_tensor> added = {})
    : learner_layer(std::move(below), own_tensors(this, below->tensors(), rule, std::move(added)),
                    mark_of(rule)),
      rule_(rule), all_moved_(moved_tensors(this->below().tensors())),
      parameters_(tensors().indices_of({kind::parameter}).size()),
      fragments_(tensors(), std::min(rule.fragments, std::max<std::size_t>(parameters_, 1))),
      anchor_(std::make_shared<shared_parameters>(parameter_count(), padding())),
      momentum_(rule.momentum != 0 ? parameter_count() : 0),
      progress_(fragments_, padding(), tensors().metric_count() > 0) {
    for (std::size_t i = 0; i < fragments_.count(); ++i)
      moved_.push_back(fragments_.count() == 1
                         ? all_moved_
                         : moved_tensors(this->below().tensors(), fragments_.count(), i));
    anchor_->change([this](float_vector& anchor) { read_theta(*all_moved_, anchor); });
    this->below().use_shared(anchor_);
  }

  void use_vectors(std::shared_ptr<vector_pool> /*vectors*/) override {} // of another length

  micro_step accumulate() override {
    settle_drop();
    auto step = below().accumulate();
    loss_of_pass_ = step.loss;
    // A round looks at its fragment alone.
    if (!step.finite && fragments_.count() > 1 && !is_theta_finite())
      step.lost += drop_gradient();
    return step;
  }

  void step_locally(double lr) override {
    // A copy of θ has the steps of the samples that count, and no more.
    std::unique_lock lock{mutex_};
    while (progress_.is_dropped()) { // since the pass began
      lock.unlock();
      settle_drop();
      lock.lock();
    }
    auto samples = below().accumulated_samples();
    below().step_locally(lr);
    progress_.add(samples, loss_of_pass_, below().position());
    merges_in_copy_ = merges_;
  }

  void at_update(epoch_id ends) override { updated_ = fragment_of(ends); }
  void apply(std::span<const float> mean, double lr) override;
  [[nodiscard]] std::uint64_t rounding() const override { return 0; } // outer steps round alike

  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    below().merge_buffers(mean, contributed);
    std::lock_guard lock{mutex_};
    ++merges_;
  }

  void read_tensor(std::size_t which, std::span<float> out) const override {
    if (which >= parameters_)
      return learner_layer::read_tensor(which, out);
    auto from = values_of(which);
    std::copy(from.begin(), from.end(), out.begin());
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    return which < parameters_ ? part_of(anchor(), which) : learner_layer::values_of(which);
  }
  /// A state is being loaded; `set_optimizer_steps` ends it.
  void write_tensor(std::size_t which, std::span<const float> values) override {
    if (which >= parameters_)
      return learner_layer::write_tensor(which, values);
    std::lock_guard lock{mutex_};
    moves_ = true;
    anchor_->load(static_cast<std::size_t>(tensors().offset(which)), values);
  }

  void set_optimizer_steps(std::uint64_t steps) override {
    std::optional<float_vector> before;
    progress_in_flight::kept kept;
    {
      std::lock_guard lock{mutex_};
      before = anchor_->end_load();
      kept = progress_.reload(before ? *before : anchor());
    }
    bool moves = before && kept.any;
    if (!moves || kept.from)
      write_theta(kept.from ? *kept.from : anchor());
    below().set_optimizer_steps(steps);
    if (moves)
      below().add_change(all_moved_->indices(), anchor(), *before);
    end_move();
  }

  void at_round(epoch_id ends) override {
    std::lock_guard lock{mutex_};
    taken_ = fragment_of(ends);
  }
  /// Waits for a step at most. While θ moves, which may take until a user's loop comes back,
  /// nothing is contributed, and what was accumulated stays.
  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    std::lock_guard lock{mutex_};
    const auto& moved = *moved_[taken_];
    auto values = moved.parameter_count();
    auto count = gradient_count() - parameter_count() + values;
    auto out = vectors.take(count + room);
    bool departs = !moves_ && progress_.may_depart();
    float_vector theta(departs ? moved.tensor_value_count() : 0);
    if (!departs || !below().copy_tensors(moved.indices(), theta)) {
      std::fill(out->begin(), out->end(), 0.0F);
      return {std::move(out)};
    }
    auto buffers = std::span{theta}.subspan(values);
    for (const auto& piece : fragments_.pieces(taken_))
      for (std::size_t i = 0; i < piece.length; ++i)
        (*out)[piece.in_fragment + i] = anchor()[piece.in_all + i] - theta[piece.in_fragment + i];
    std::copy(buffers.begin(), buffers.end(), out->begin() + static_cast<std::ptrdiff_t>(values));
    std::fill(buffers.begin(), buffers.end(), 0.0F);
    const auto& copy = progress_.depart(std::move(theta), out, taken_);
    if (tensors().metric_count() > 0)
      std::ranges::copy(copy.losses.per_sample(copy.samples),
                        out->begin() + static_cast<std::ptrdiff_t>(count - loss_values));
    return {std::move(out), copy.samples, merges_in_copy_};
  }
  std::uint64_t take_back() override {
    std::lock_guard lock{mutex_};
    return progress_.take_back();
  }
  std::uint64_t drop_gradient() override {
    std::lock_guard lock{mutex_};
    return progress_.drop(below().position());
  }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return progress_.samples(); }
  [[nodiscard]] learner_abilities abilities() const override {
    auto can = below().abilities();
    can.copies_during_passes = false; // of its own tensors
    return can;
  }
  [[nodiscard]] bool waits_for_pass() const override {
    return !below().abilities().copies_during_passes;
  }

  // -- over a restart

  [[nodiscard]] std::string taken_position() const override {
    std::lock_guard lock{mutex_};
    return progress_.taken_position();
  }
  [[nodiscard]] partial_gradient copy_gradient() const override {
    std::lock_guard lock{mutex_};
    float_vector theta(anchor().size());
    read_theta(*all_moved_, theta);
    return progress_.save(theta, anchor());
  }

  status load_gradient(const partial_gradient& partial) override {
    std::lock_guard lock{mutex_};
    auto theta = progress_.load(partial, below().position());
    if (!theta)
      return theta.error();
    write_theta(*theta);
    below().set_optimizer_steps(below().optimizer_steps());
    return done{};
  }

private:
  using kind = state_tensor::kind;

  /// What a peer has alone is of its fragments: a state is of no use with others.
  static std::string mark_of(const outer_rule& rule) {
    std::string mark = rule.momentum != 0 ? "waggle anchor with momentum 1" : "waggle anchor 1";
    return rule.fragments > 1 ? mark + " in " + std::to_string(rule.fragments) : mark;
  }
  [[nodiscard]] bool is_theta_finite() const {
    float_vector theta(anchor().size());
    read_theta(*all_moved_, theta);
    return std::ranges::all_of(theta, [](float x) { return std::isfinite(x); });
  }

  /// The outer momentum of each parameter, or those that were added.
  static std::vector<own_tensor> own_tensors(anchored_learner* self, const state_table& below,
                                             const outer_rule& rule, std::vector<own_tensor> own) {
    if (rule.momentum == 0)
      return own;
    WAGGLE_CHECK(own.empty(), "own tensors of two kinds");
    for (auto i : below.indices_of({kind::parameter}))
      own.push_back(
        {{"outer/momentum/" + below[i].name, below[i].shape, kind::outer},
         [self, i]() -> std::span<const float> { return self->part_of(self->momentum_, i); },
         [self, i](std::span<const float> values) {
           std::lock_guard lock{self->mutex_};
           self->moves_ = true;
           auto to = self->part_of(self->momentum_, i);
           std::copy(values.begin(), values.end(), to.begin());
         }});
    return own;
  }

  /// The tensors that are copied and moved together: parameters and buffers.
  static std::shared_ptr<const averaged_tensors>
  moved_tensors(const state_table& below, std::size_t fragments = 1, std::size_t which = 0) {
    lane parameters;
    parameters.what = lane_content::parameters;
    parameters.fragments = fragments;
    auto found = averaged_tensors::of(below, parameters, which);
    WAGGLE_CHECK(found.ok(), "parameters can always be averaged");
    return *found;
  }

  /// The values of parameter `which` in a vector of all parameters.
  template <class Vector>
  [[nodiscard]] std::span<std::remove_reference_t<decltype(std::declval<Vector&>()[0])>>
  part_of(Vector& all, std::size_t which) const {
    return std::span{all}.subspan(static_cast<std::size_t>(tensors().offset(which)),
                                  static_cast<std::size_t>(tensors()[which].elements()));
  }
  [[nodiscard]] std::size_t padding() const {
    return all_moved_->tensor_value_count() - parameter_count();
  }
  [[nodiscard]] std::size_t fragment_of(epoch_id ends) const {
    return ends.value() % fragments_.count();
  }
  /// Without the buffers. The computing thread.
  void read_theta(const averaged_tensors& of, std::span<float> out) const {
    std::size_t at = 0;
    for (auto i : of.indices())
      if (at < of.parameter_count()) {
        auto length = static_cast<std::size_t>(below().tensors()[i].elements());
        below().read_tensor(i, out.subspan(at, length));
        at += length;
      }
    std::ranges::fill(out.subspan(at), 0.0F);
  }
  /// What of the anchor belongs to the update.
  [[nodiscard]] float_vector updated_anchor() const {
    float_vector out(moved_[updated_]->tensor_value_count());
    fragments_.gather(updated_, anchor(), out);
    return out;
  }

  [[nodiscard]] const float_vector& anchor() const { return anchor_->values(); }

  void write_theta(std::span<const float> values) {
    for (std::size_t i = 0; i < parameters_; ++i)
      below().write_tensor(i, part_of(values, i));
  }
  /// The outer step. Returns the parameters to which the old anchor, or what of θ is in the mean,
  /// belongs: θ moves by the difference.
  float_vector begin_move(std::span<const float> mean) {
    std::lock_guard lock{mutex_};
    moves_ = true;
    // An update that this peer had missed comes after the copy for a later one has departed.
    auto landed = progress_.flies_other_than(updated_) ? std::nullopt : progress_.land();
    auto before = landed ? std::move(landed->theta) : updated_anchor();
    // Nobody else took part in the round: it has returned the very vector.
    bool alone = landed && landed->sent && landed->sent->data() == mean.data();
    if (alone && rule_.rate == 1 && rule_.momentum == 0)
      anchor_->change([&](float_vector& anchor) { fragments_.scatter(updated_, before, anchor); });
    else
      anchor_->change([&](float_vector& anchor) { outer_step(anchor, mean); });
    return before;
  }

  void outer_step(float_vector& anchor, std::span<const float> mean);

  void end_move() {
    std::lock_guard lock{mutex_};
    moves_ = false;
  }
  /// Undoes the steps whose samples were dropped. By writing, because they may not be finite.
  void settle_drop() {
    std::optional<float_vector> back;
    {
      std::lock_guard lock{mutex_};
      back = progress_.undo(anchor());
      if (!back)
        return;
      moves_ = true;
    }
    write_theta(*back);
    reset_statistics();
    below().set_optimizer_steps(below().optimizer_steps());
    end_move();
  }
  /// With statistics that are not finite, the next step would spoil the parameters again.
  void reset_statistics() {
    float_vector values;
    const auto& table = below().tensors();
    for (auto i : table.indices_of({kind::statistic, kind::square})) {
      values.resize(static_cast<std::size_t>(table[i].elements()));
      below().read_tensor(i, values);
      if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
        continue;
      std::fill(values.begin(), values.end(), 0.0F);
      below().write_tensor(i, values);
    }
  }

  const outer_rule rule_;
  const std::shared_ptr<const averaged_tensors> all_moved_;    // parameters and buffers below
  std::vector<std::shared_ptr<const averaged_tensors>> moved_; // of each fragment
  const std::size_t parameters_;                               // tensors of this kind
  const waggle::fragments fragments_;

  mutable std::mutex mutex_; // locked before the mutex of the learner below
  // Written by the computing thread while it holds mutex_.
  const std::shared_ptr<shared_parameters> anchor_;
  float_vector momentum_;   // empty: none
  bool moves_ = false;      // anchor and θ do not belong together at the moment
  std::size_t updated_ = 0; // fragment of the update; the computing thread's
  // Guarded by mutex_.
  std::size_t taken_ = 0; // fragment of what is taken next
  progress_in_flight progress_;
  std::uint64_t merges_ = 0; // of buffers
  std::uint64_t merges_in_copy_ = 0;
  double loss_of_pass_ = 0; // the computing thread's
};

/// Makes learners of this kind from those of `make`, which step locally. Fails with ec::bad_config
/// if they cannot.
template <class Anchored = anchored_learner, class Rule>
learner_factory anchored(learner_factory make, const std::string& strategy, const Rule& rule) {
  return layered<Anchored>(
    std::move(make), "this model cannot step locally, as --strategy " + strategy + " does", rule);
}

} // namespace waggle
