#include <algorithm>
#include <array>

#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/strategies/anchored_learner.hpp"
#include "runtime/training/strategies/daso_schedule.hpp"
#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

namespace {

daso_rule rule_of(const strategy_settings& s) {
  auto number = [&](std::string_view of) {
    return static_cast<std::uint64_t>(strategies::daso.number(s, of));
  };
  return {.epochs = number("epochs"),
          .batches = number("batches"),
          .warmup = number("warmup"),
          .cooldown = number("cooldown"),
          .stability = strategies::daso.number(s, "stability"),
          .max_skips = number("max-skips"),
          .skip_reduction = number("skip-reduction"),
          .local_skip_factor = number("local-skip-factor"),
          .endless = number("endless") != 0};
}

constexpr outer_rule plain_mean{.rate = 1, .momentum = 0, .nesterov = false, .blends = true};

/// The anchor is the mean of the last round. The schedule's state is a tensor behind it, which all
/// peers of an epoch share; the losses on which it depends are averaged with the progress.
class daso_learner : public anchored_learner {
public:
  daso_learner(std::unique_ptr<learner> below, const daso_rule& rule)
    : anchored_learner(
      std::move(below), plain_mean,
      {coded_tensor(
         {"schedule/daso", {daso_schedule::value_count}, state_tensor::kind::outer},
         [this] { return schedule_.encode(); },
         [rule](auto values) { return daso_schedule::decode(rule, values); },
         [this](const daso_schedule& loaded) {
           std::lock_guard lock{deciding_};
           schedule_ = loaded;
         }),
       kept_tensor({"schedule/loss", {loss_values}, state_tensor::kind::metric},
                   [this] { return std::span{losses_}; })}),
      schedule_(rule) {}

  void take_metrics(std::span<const float> means, epoch_id /*epoch*/) override {
    std::ranges::copy(means.last(loss_values), losses_.begin());
    std::lock_guard lock{deciding_};
    schedule_.end_round(loss_in(losses_));
  }
  [[nodiscard]] std::vector<float> strategy_state() const override {
    std::lock_guard lock{deciding_};
    auto values = schedule_.encode();
    return {values.begin(), values.end()};
  }
  [[nodiscard]] digest schema() const override {
    return sha256_stream{}.add("waggle daso 2").add(anchored_learner::schema().view()).finish();
  }

private:
  mutable std::mutex deciding_; // not the other one, which a step may hold for long
  daso_schedule schedule_;      // changed by the computing thread alone, which holds deciding_
  std::array<float, loss_values> losses_{}; // of the last round; the computing thread's
};

/// The lane of the round after those in `schedule`, of which one may be in flight.
void set_lane(lane& to, const daso_schedule& schedule, bool in_flight) {
  auto next = schedule.next(in_flight ? 1 : 0);
  bool lock_step = schedule.now().global == 0;
  to.due = {lock_step ? lane_clock::unit::each_member : lane_clock::unit::first_peer, next.after};
  if (in_flight)
    return;
  to.overlap = {lane_overlap::until::own_steps, next.merged - next.begun};
  to.merge.behind = next.behind;
}

/// DASO (HeAT) where an island is a peer with `--replicas`, whose gradients are averaged at every
/// batch. What differs from HeAT, and why:
///
/// - Progress since the last mean travels instead of parameters, so that bf16 rounds what was
///   learned, and not the weights: an update below half a bf16 ulp of its weight would vanish.
/// - The mean of the last round is an anchor that all peers hold equally. It is what a newcomer, or
///   a peer that missed a round, downloads, with the state of the schedule, and what is compared.
///   A mean weighs by samples: a peer without any has no share.
/// - A round is due when the fastest peer has made its batches, and in warm-up and cool-down when
///   each peer has made one: nobody waits long for a peer that has stopped.
/// - A blocking merge keeps what a peer has learned since its copy (INV-5), in lock step nothing. A
///   late one draws it towards the mean, as published. A peer alone merges nothing: its run is the
///   plain loop, where HeAT would pull it back to its own older parameters.
/// - The skips stay at least 1, where HeAT can reach 0 or −1 and then blocks for good.
/// - Replicas sum their gradients in one memory, so nothing is saved by letting them drift apart
///   between two rounds: `local-skip-factor` only says how many batches a merge is late. They are
///   always equal, so it does not matter whose parameters are sent.
///
/// A round sends one vector of parameters in bf16; a peer keeps two vectors more than without it
/// (anchor, and during a round a copy) and the progress that it sends.
strategy make(const strategy_settings& s) {
  lane progress;
  progress.what = lane_content::progress;
  progress.coding = s.coding;
  progress.merge.how = lane_merge::rule::blend;
  set_lane(progress, daso_schedule{rule_of(s)}, false);
  return {progress};
}

daso_schedule schedule_in(const strategy_settings& s, std::span<const float> state) {
  auto schedule = daso_schedule::decode(rule_of(s), state);
  WAGGLE_CHECK(schedule.ok(), "the state of a learner of this strategy");
  return *schedule;
}

strategy on_boundary(strategy now, const strategy_settings& s, const training_history& history) {
  set_lane(now.averages, schedule_in(s, history.state), history.in_flight);
  return now;
}

strategy_phase phase(const strategy_settings& s, std::span<const float> state) {
  return (state.empty() ? daso_schedule{rule_of(s)} : schedule_in(s, state)).phase();
}

learner_factory learners(learner_factory make, const strategy_settings& s) {
  return anchored<daso_learner>(std::move(make), "daso", rule_of(s));
}

status check(const strategy_settings& s) {
  auto rule = rule_of(s);
  auto bad = [](const char* why) {
    return failure{ec::bad_config, std::string{"is not possible: "} + why};
  };
  if (rule.warmup + rule.cooldown > rule.epochs)
    return bad("warmup and cooldown together are more than epochs; lower one of them, or raise "
               "epochs");
  if (rule.max_skips < rule.local_skip_factor)
    return bad("max-skips is less than local-skip-factor, so that a round would be merged after "
               "less than a batch; raise max-skips, or lower local-skip-factor");
  return done{};
}

constexpr std::string_view options[]{"passes", "low-rank", "max-epoch-difference"};

using form = named_number::form;
constexpr double count_max = daso_schedule::count_max;
constexpr named_number numbers[] = {{"epochs", form::whole, 1, count_max, 40.0},
                                    {"batches", form::whole, 1, count_max, 50.0},
                                    {"warmup", form::whole, 1, count_max, 4.0},
                                    {"cooldown", form::whole, 0, count_max, 4.0},
                                    {"stability", form::real, 0.0001, 0.9999, 0.05},
                                    {"max-skips", form::whole, 1, 1024, 8.0},
                                    {"skip-reduction", form::whole, 1, 1024, 2.0},
                                    {"local-skip-factor", form::whole, 1, 1024, 4.0},
                                    {"endless", form::whole, 0, 1, 0.0}};

} // namespace

const strategy_row strategies::daso{
  .name = "daso",
  .help = "Each peer steps at once, with the mean gradient of its --replicas; peers average after "
          "every batch of the first and last of `epochs`, and otherwise every few of an epoch's "
          "`batches`, training on meanwhile, more rarely when the loss is stable (HeAT). The run "
          "ends with the last of `epochs`, unless `endless` is 1.",
  .make = make,
  .rounds = "averages the progress of peers that share one anchor, between warm-up and cool-down "
            "while they train on, as the numbers behind its name say: daso:epochs=N,batches=N",
  .options = options,
  .numbers = numbers,
  .learners = learners,
  .check = check,
  .on_boundary = on_boundary,
  .phase = phase,
  .codec = codec_id::bfloat16};

} // namespace waggle
