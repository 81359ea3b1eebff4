#include "runtime/training/strategies/diloco.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>

#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/local_learner.hpp"
#include "runtime/training/resumable_learner.hpp"
#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

namespace {

using kind = state_tensor::kind;

state_table with_outer(const state_table& inner, const outer_rule& rule) {
  auto all = inner.tensors();
  auto statistics = std::find_if(all.begin(), all.end(),
                                 [](const state_tensor& t) { return t.what != kind::parameter; });
  std::vector<state_tensor> outer;
  for (auto p = all.begin(); rule.momentum != 0 && p != statistics; ++p)
    outer.push_back({"outer/momentum/" + p->name, p->shape, kind::outer});
  all.insert(statistics, outer.begin(), outer.end());
  return state_table{std::move(all)};
}

/// The tensors of the inner learner that are copied and moved together: parameters and buffers.
std::shared_ptr<const averaged_tensors> moved_tensors(const state_table& inner) {
  lane parameters;
  parameters.what = lane_content::parameters;
  auto found = averaged_tensors::of(inner, parameters);
  WAGGLE_CHECK(found.ok(), "parameters can always be averaged");
  return *found;
}

/// Vectors have the values of `moved_`: the parameters, and behind them, where they are of no use,
/// zeros for the buffers.
class anchored_learner : public stepping_learner, public wraps_learner {
public:
  anchored_learner(std::unique_ptr<local_learner> inner, const outer_rule& rule)
    : inner_(std::move(inner)), rule_(rule), tensors_(with_outer(inner_->tensors(), rule)),
      moved_(moved_tensors(inner_->tensors())), anchor_(moved_->tensor_value_count()),
      momentum_(rule.momentum != 0 ? parameter_count() : 0) {
    while (parameters_ < tensors_.size() && tensors_[parameters_].what == kind::parameter)
      ++parameters_;
    outer_ = rule.momentum != 0 ? parameters_ : 0;
    copy_inner(anchor_);
  }

  [[nodiscard]] learner& wrapped() const override { return *inner_; }
  void use_vectors(std::shared_ptr<vector_pool> /*vectors*/) override {} // of another length

  micro_step accumulate() override {
    settle_drop();
    return inner_->accumulate();
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
    merges_in_copy_ = merges_;
    note_position();
  }
  void apply(std::span<const float> mean, double /*lr*/) override {
    settle_drop();
    auto before = begin_move(mean);
    inner_->add_change(moved_->indices(), anchor_, before);
    end_move();
  }
  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    inner_->merge_buffers(mean, contributed);
    std::lock_guard lock{mutex_};
    ++merges_;
  }

  void read_tensor(std::size_t which, std::span<float> out) const override {
    if (which >= parameters_ + outer_)
      return inner_->read_tensor(which - outer_, out);
    auto from = values_of(which);
    std::copy(from.begin(), from.end(), out.begin());
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    if (which >= parameters_ + outer_)
      return inner_->values_of(which - outer_);
    auto begin = static_cast<std::size_t>(tensors_.offset(which));
    auto length = static_cast<std::size_t>(tensors_[which].elements());
    if (which < parameters_)
      return std::span<const float>{anchor_}.subspan(begin, length);
    return std::span<const float>{momentum_}.subspan(begin - parameter_count(), length);
  }
  /// A state is being loaded; `set_optimizer_steps` ends it.
  void write_tensor(std::size_t which, std::span<const float> values) override {
    if (which >= parameters_ + outer_)
      return inner_->write_tensor(which - outer_, values);
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
    flight_.reset();
    return samples;
  }
  std::uint64_t drop_gradient() override {
    std::lock_guard lock{mutex_};
    drop_ = drop_ || samples_ > 0;
    drop_to_.reset();
    note_position();
    taken_position_ = position_;
    return samples_.exchange(0);
  }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return samples_; }
  [[nodiscard]] bool waits_for_pass() const override { return !inner_->copies_during_passes(); }

protected:
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
    auto both = std::make_shared<float_vector>(flight_ ? 2 * count : count);
    float_vector theta(moved_->tensor_value_count());
    copy_inner(theta);
    std::copy_n(theta.begin(), count, both->begin());
    if (flight_)
      std::copy_n(flight_->theta.begin(), count,
                  both->begin() + static_cast<std::ptrdiff_t>(count));
    // No loss is scaled here: the place of its scale holds the samples of the round's copy.
    auto in_flight = flight_ ? static_cast<double>(flight_->samples) : 1;
    return {std::move(both), samples_.load(), 0, in_flight};
  }
  status load_progress(const partial_gradient& partial) {
    auto count = parameter_count();
    auto length = partial.sum ? partial.sum->size() : 0;
    if (length != count && length != 2 * count)
      return failure{ec::malformed, "another length"};
    write_parameters(*partial.sum);
    inner_->set_optimizer_steps(inner_->optimizer_steps());
    std::lock_guard lock{mutex_};
    samples_ = partial.samples;
    note_position();
    if (length == count)
      return done{};
    flight_.emplace();
    flight_->theta.assign(partial.sum->begin() + static_cast<std::ptrdiff_t>(count),
                          partial.sum->end());
    flight_->theta.resize(moved_->tensor_value_count());
    flight_->samples = static_cast<std::uint64_t>(std::clamp(partial.scale, 0.0, 0x1p40));
    return done{};
  }

private:
  /// Progress that a round averages.
  struct flight {
    float_vector theta; // when it was taken
    std::uint64_t samples = 0;
    std::shared_ptr<const float_vector> given; // what was taken; null: not known any more
  };

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
      if (tensor.what != kind::statistic && tensor.what != kind::square)
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
  std::size_t parameters_ = 0; // tensors of this kind
  std::size_t outer_ = 0;

  // Written by the computing thread while it holds mutex_, which is locked before the inner
  // learner's.
  mutable std::mutex mutex_;
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
};

/// On top of a learner that can resume.
class resumable_anchored_learner final : public anchored_learner, public resumable_learner {
public:
  using anchored_learner::anchored_learner;

  [[nodiscard]] std::string position() const override { return resumed().position(); }
  [[nodiscard]] std::string taken_position() const override { return position_when_taken(); }
  status load_position(std::string_view position) override {
    return resumed().load_position(position);
  }
  [[nodiscard]] partial_gradient copy_gradient() const override { return copy_progress(); }
  status load_gradient(const partial_gradient& partial) override { return load_progress(partial); }
};

outer_rule rule_of(const strategy_settings& s) {
  auto number = [&](std::string_view of) { return strategies::diloco.number(s, of); };
  return {number("outer-rate"), number("outer-momentum"), number("nesterov") != 0};
}

/// The anchor and the outer momentum are equal on all peers; a peer keeps those two vectors more
/// than its own parameters, and during a round its progress and a copy. A round sends one vector of
/// parameters every `steps` passes.
strategy make(const strategy_settings& s) {
  auto number = [&](std::string_view of) {
    return static_cast<std::uint64_t>(strategies::diloco.number(s, of));
  };
  auto rule = rule_of(s);
  lane progress;
  progress.what = lane_content::progress;
  progress.due = {lane_clock::unit::first_peer, number("steps"), 0, s.time_period};
  progress.overlap = {lane_overlap::until::own_steps, number("overlap")};
  progress.coding = s.coding;
  progress.merge = {lane_merge::rule::outer_step, rule.rate, 1};
  progress.on_failure = failure_rule::own_gradient;
  return {inner_rule::step, {progress}, consistency_rule::anchor};
}

learner_factory learners(learner_factory make, const strategy_settings& s) {
  return with_anchor(std::move(make), rule_of(s));
}

using form = named_number::form;
constexpr named_number numbers[] = {{"steps", form::whole, 1, 0x1p30, 100.0},
                                    {"outer-rate", form::real, 0, 100, 0.7},
                                    {"outer-momentum", form::real, 0, 0.9999, 0.9},
                                    {"nesterov", form::whole, 0, 1, 1.0},
                                    {"overlap", form::whole, 0, 0x1p30, 0.0}};

} // namespace

learner_factory with_anchor(learner_factory make, const outer_rule& rule) {
  return [make = std::move(make), rule]() -> result<std::unique_ptr<learner>> {
    auto inner = make();
    if (!inner)
      return inner.error();
    auto* local = dynamic_cast<local_learner*>(inner->get());
    if (local == nullptr)
      return failure{ec::bad_config, "this model cannot step locally, as --strategy diloco does"};
    inner->release();
    std::unique_ptr<local_learner> steps{local};
    if (resumable_of(*local) != nullptr)
      return std::unique_ptr<learner>{
        std::make_unique<resumable_anchored_learner>(std::move(steps), rule)};
    return std::unique_ptr<learner>{std::make_unique<anchored_learner>(std::move(steps), rule)};
  };
}

const strategy_row strategies::diloco{"diloco",
                                      "Each peer steps at once; when the fastest has made `steps`, "
                                      "an outer optimizer (SGD with Nesterov "
                                      "momentum) steps with the mean progress of all, for slow "
                                      "links; `overlap`: passes go on for so many "
                                      "steps meanwhile.",
                                      make,
                                      false,
                                      true,
                                      "",
                                      "",
                                      numbers,
                                      learners};

} // namespace waggle
