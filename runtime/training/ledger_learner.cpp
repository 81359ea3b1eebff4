#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include "runtime/core/check.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"

namespace waggle {

namespace {

constexpr auto claim_count = sample_ledger::ranges;

class ledger_learner final : public learner_layer {
public:
  ledger_learner(std::unique_ptr<learner> below, std::shared_ptr<sample_draws> draws, bool progress)
    : learner_layer(
      std::move(below),
      {coded_tensor(
         {"data/ledger", {sample_ledger::value_count}, state_tensor::kind::statistic},
         [draws] { return draws->ledger().encode(); },
         [draws](auto values) { return sample_ledger::decode(draws->ledger().samples(), values); },
         [this](const sample_ledger& loaded) {
           if (progress_)
             forget_progress();
           follow(loaded);
         }),
       kept_tensor({"data/claims", {claim_count}, state_tensor::kind::metric},
                   [this] { return std::span{claims_}; })},
      "waggle ledger 3/" + std::to_string(draws->ledger().samples())),
      draws_(std::move(draws)), progress_(progress) {}

  /// The learner's own vectors are shorter than those of the rounds, so the pool is not for them.
  void use_vectors(std::shared_ptr<vector_pool> /*vectors*/) override {}

  micro_step accumulate() override {
    auto step = below().accumulate();
    if (step.why.code != ec::none)
      return step;
    if (!step.finite || step.lost > 0)
      draws_->refuse(step.samples, step.finite ? 0 : step.lost);
    else if (!draws_->pass_ended(step.samples)) {
      if (progress_)
        void_step_ = true;
      else
        step.lost += drop_gradient();
    }
    step.lost += lost_.exchange(0);
    return step;
  }
  void step_locally(double lr) override {
    learner_layer::step_locally(lr);
    if (std::exchange(void_step_, false))
      lost_ += drop_gradient();
  }

  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    auto lock = lock_pair();
    auto mean = below().take_mean_vector(vectors, room + claim_count);
    auto given = draws_->take(mean.samples);
    auto values = std::span{*mean.values};
    if (!given.holds) {
      WAGGLE_CHECK(!progress_, "it was dropped with the ledger that says so");
      std::fill(values.begin(), values.end(), 0.0F);
      draws_->take_back();
      lost_ += std::exchange(mean.samples, 0);
    }
    sample_ledger::write_claims(given.counts, mean.samples,
                                values.last(room + claim_count).first<claim_count>());
    return mean;
  }
  std::uint64_t drop_gradient() override {
    auto lock = lock_pair();
    auto samples = below().drop_gradient();
    draws_->drop(samples);
    return samples + lost_.exchange(0);
  }
  /// A peer cannot take back a gradient that it gave: it may be in an update of the others. If
  /// progress is, the ledger of their state says so.
  std::uint64_t take_back() override {
    if (!progress_) {
      draws_->take_back();
      return 0;
    }
    auto lock = lock_pair();
    draws_->return_taken();
    return below().take_back();
  }

  [[nodiscard]] std::optional<sample_ledger> ledger() const override { return draws_->ledger(); }
  [[nodiscard]] bool has_samples() const override { return draws_->has_samples(); }
  [[nodiscard]] learner_abilities abilities() const override {
    auto can = below().abilities();
    can.steps_locally = can.steps_locally && progress_;
    can.resumes = false;
    return can;
  }

  void take_metrics(std::span<const float> means, epoch_id epoch) override {
    auto others = means.size() - claim_count;
    if (others > 0)
      below().take_metrics(means.first(others), epoch);
    std::copy(means.begin() + static_cast<std::ptrdiff_t>(others), means.end(), claims_.begin());
    claimed_ = true;
  }
  void end_epoch(const decided_round& by) override {
    auto claims =
      std::exchange(claimed_, false) ? std::span<const float>{claims_} : std::span<const float>{};
    auto now = draws_->ledger();
    now.end_epoch(claims, by.weight, by.members);
    follow(now);
    below().end_epoch(by);
  }

private:
  /// Who takes or drops samples does so below and in the draws at once.
  [[nodiscard]] std::unique_lock<std::mutex> lock_pair() {
    return progress_ ? std::unique_lock{pair_} : std::unique_lock<std::mutex>{};
  }
  /// Another state is loaded, which may have what this peer gave.
  void forget_progress() {
    auto given = take_back(); // whoever flies them reports them
    lost_ += drop_gradient() - given;
  }
  void follow(const sample_ledger& now) {
    if (!draws_->follow(now))
      lost_ += drop_gradient();
  }

  const std::shared_ptr<sample_draws> draws_;
  const bool progress_;
  std::mutex pair_;
  std::atomic<std::uint64_t> lost_{0}; // dropped here, and not reported
  // -- the computing thread
  std::array<float, claim_count> claims_{}; // the mean of the last update
  bool claimed_ = false;                    // since the last epoch ended
  bool void_step_ = false; // of the pass that has just ended: its samples do not hold
};

} // namespace

learner_factory with_ledger(learner_factory make, std::shared_ptr<sample_draws> draws,
                            bool progress) {
  return draws ? layered<ledger_learner>(std::move(make), "", std::move(draws), progress) : make;
}

} // namespace waggle
