#pragma once

// The strategies and their options, as modes of the peers of a simulated swarm.

#include "runtime/training/layers.hpp"
#include "runtime/training/schedule_text.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {

inline const toy_options plain_toy{.parameters = 64, .micro_batch = 4};

struct mode {
  const char* name;
  void (*set)(training_config& config);
  bool equal_parameters = false; // of all peers of an epoch
  /// The codec among peers of all kinds (mixed_modes_test.cpp); none: it is not tried there.
  std::optional<codec_choice> mixed = {};
  toy_options toy = plain_toy;
  codec_choice codec = codec_id::none;
};

inline const toy_options in_place{.parameters = 64, .micro_batch = 4, .in_place = true};
inline const toy_options of_matrix{.parameters = 64, .micro_batch = 4, .rows = 8};
inline const toy_options in_tensors{.parameters = 64, .micro_batch = 4, .tensors = 5};
inline const toy_options by_adam{.parameters = 64, .micro_batch = 4, .adam = true};

inline void PrintTo(const mode& m, std::ostream* out) {
  *out << m.name;
}

/// Steps with single micro-batches need a smaller rate.
inline void local(training_config& c, const char* strategy) {
  c.strategy = strategy;
  c.schedule.peak = 0.005;
}

inline std::vector<schedule_part> parts_of(const char* schedule) {
  auto parts = parse_schedule(schedule);
  EXPECT_TRUE(parts) << schedule;
  return parts ? *parts : std::vector<schedule_part>{};
}

inline void delay(training_config& c, bool gradients, bool steps) {
  c.how.delay_gradients = gradients;
  c.delay_optimizer_step = steps;
}
inline void low_rank(training_config& c) {
  c.how.coding = {2, 0.4};
}
inline void plateau(training_config& c) {
  c.schedule.parts = parts_of("plateau:factor=0.8,patience=3,threshold=0.3");
}
inline void by_steps(training_config& c, std::uint64_t period) {
  local(c, "decentralized-sgd");
  c.how.steps_period = period;
}
inline void by_time(training_config& c, milliseconds period) {
  by_steps(c, 1);
  c.how.time_period = period;
}
inline void moshpit_of_samples(training_config& c) {
  local(c, "local-updates");
  c.target_batch_size = 96;
  c.many_groups = true;
}
constexpr std::nullopt_t not_mixed = std::nullopt;

inline const mode modes[] = {
  {"Collaborative", [](auto&) {}, true, codec_id::uniform8},
  {"ReusedBuffers", [](auto&) {}, true, codec_id::uniform8, in_place},
  {"DelayedStepsInReusedBuffers", [](auto& c) { delay(c, false, true); }, true, codec_id::uniform8,
   in_place},
  {"DelayedAllInReusedBuffers", [](auto& c) { delay(c, true, true); }, true, not_mixed, in_place},
  {"DelayedGradients", [](auto& c) { delay(c, true, false); }, true, codec_id::float16},
  {"DataParallel", [](auto& c) { c.strategy = "data-parallel"; }, true},
  {"DataParallelDelayed",
   [](auto& c) {
     c.strategy = "data-parallel";
     delay(c, true, false);
   },
   true},
  {"DataParallelBuckets", [](auto& c) { c.strategy = "data-parallel:buckets=1"; }, true},
  {"Diloco", [](auto& c) { local(c, "diloco:steps=6"); }, true},
  {"DilocoOverlapped", [](auto& c) { local(c, "diloco:steps=6,overlap=3"); }, true},
  {"DilocoSparse",
   [](auto& c) {
     local(c, "diloco:steps=6,outer-rate=1,outer-momentum=0");
     c.schedule.peak = 0.002; // what is sent late has the size of several rounds
   },
   true, not_mixed, plain_toy, codec_id::sparse2},
  {"DilocoFragments",
   [](auto& c) {
     local(c, "diloco:steps=6,fragments=3,overlap=1");
     c.schedule.peak = 0.002; // of a few values, a step is a larger share
   },
   true, not_mixed, in_tensors},
  {"DilocoFragmentsSparse",
   [](auto& c) {
     local(c, "diloco:steps=6,fragments=2,outer-rate=1,outer-momentum=0");
     c.schedule.peak = 0.002;
   },
   true, not_mixed, in_tensors, codec_id::sparse2},
  {"DilocoLowRank",
   [](auto& c) {
     local(c, "diloco:steps=6,outer-rate=1,outer-momentum=0");
     low_rank(c);
   },
   true, not_mixed, of_matrix},
  {"DilocoAdam", [](auto& c) { local(c, "diloco:steps=6"); }, true, not_mixed, by_adam},
  {"Daso",
   [](auto& c) {
     local(c, "daso:epochs=1000,batches=8,warmup=2,cooldown=1,max-skips=4,stability=0.5");
     c.schedule.peak = 0.02;
   },
   true},
  {"DelayedSteps", [](auto& c) { delay(c, false, true); }, true, codec_id::none},
  {"DelayedGradientsAndSteps", [](auto& c) { delay(c, true, true); }, true, codec_id::uniform8},
  {"LowRank", low_rank, true, codec_id::float16, of_matrix},
  {"LowRankDelayed",
   [](auto& c) {
     low_rank(c);
     delay(c, true, false);
   },
   true, not_mixed, of_matrix},
  {"LowRankDelayedSteps",
   [](auto& c) {
     low_rank(c);
     delay(c, false, true);
   },
   true, not_mixed, of_matrix},
  {"Lossy", [](auto&) {}, true, not_mixed, plain_toy, codec_id::uniform8},
  {"Plateau", plateau, true},
  {"PlateauDelayedSteps",
   [](auto& c) {
     plateau(c);
     delay(c, false, true);
   },
   true},
  {"LocalUpdates", [](auto& c) { local(c, "local-updates"); }, false, codec_id::uniform8},
  {"LossyLocalUpdates", [](auto& c) { local(c, "local-updates"); }, false, not_mixed, plain_toy,
   codec_id::float16},
  {"LocalUpdatesOfThreeEpochs",
   [](auto& c) {
     local(c, "local-updates");
     c.how.epochs_per_round = 3;
     c.target_batch_size = 96;
     c.schedule.parts = parts_of("step:every=50,factor=0.9");
   },
   false, codec_id::float16},
  {"BlockingLocalUpdates",
   [](auto& c) {
     local(c, "local-updates");
     c.how.delay_state = false;
   },
   false, codec_id::float16},
  {"DecentralizedSteps",
   [](auto& c) {
     by_steps(c, 4);
     c.how.statistics = {"momentum_buffer"};
   },
   false, codec_id::blockwise8},
  {"DecentralizedStepsInEpochs",
   [](auto& c) {
     by_steps(c, 4);
     c.how.steps_in_epoch = 40;
     c.schedule.parts = parts_of("step:every=20,factor=0.9");
   },
   false, codec_id::uniform8},
  {"DecentralizedGradients",
   [](auto& c) {
     by_steps(c, 4);
     c.how.statistics = {"momentum_buffer"};
     c.how.average_gradients = true;
   },
   false, codec_id::float16},
  {"DecentralizedGrid", [](auto& c) { by_time(c, 400ms); }, false, codec_id::scaled_float16},
  {"DecentralizedAdam",
   [](auto& c) {
     local(c, "decentralized-adam");
     c.how.steps_period = 4;
     c.how.statistics = {"exp_avg_sq"};
   },
   false, not_mixed, by_adam},
  {"MoshpitSteps",
   [](auto& c) {
     by_steps(c, 8);
     c.how.statistics = {"momentum_buffer"};
     c.many_groups = true;
   },
   false, codec_id::blockwise8},
  {"MoshpitSamples", moshpit_of_samples},
  {"BlockingMoshpit",
   [](auto& c) {
     moshpit_of_samples(c);
     c.how.delay_state = false;
   }},
  {"BlockingMoshpitGrid",
   [](auto& c) {
     by_time(c, 800ms);
     c.how.delay_state = false;
     c.many_groups = true;
   }},
};

/// The learner of a peer, once the peer has made it.
using learner_slot = std::shared_ptr<learner*>;

inline bool in_buckets(const mode& how) {
  training_config config;
  how.set(config);
  return config.strategy == "data-parallel:buckets=1";
}

/// `during_pass`: see toy_options; with buckets before each of them.
inline node_config with_mode(const mode& how, std::uint64_t data_seed, std::uint64_t max_epochs,
                             std::function<void()> during_pass = nullptr,
                             learner_slot slot = nullptr) {
  auto config = trainers::endless(data_seed);
  config.training->training.max_epochs = max_epochs;
  how.set(config.training->training);
  auto toy = how.toy;
  toy.data_seed = data_seed;
  (in_buckets(how) ? toy.before_bucket : toy.during_pass) = std::move(during_pass);
  config.averaging->averaging.codec = how.codec;
  if (uses(how.codec, sends_contributions_back))
    config.averaging->averaging.error_feedback = 0.95;
  auto make = with_averaged_gradients(
    [toy, slot]() -> result<std::unique_ptr<learner>> {
      auto made = make_toy_learner(toy);
      if (slot)
        *slot = made.get();
      return std::unique_ptr<learner>{std::move(made)};
    },
    config.training->training.how.average_gradients);
  make = config.training->training.strategy.learners(std::move(make));
  config.training->make_learner =
    with_plateau(std::move(make), config.training->training.schedule.plateau());
  if (config.training->training.many_groups) {
    auto& groups = config.averaging->matchmaking;
    groups.target_group_size = 2;
    groups.elastic_bits = true;
    groups.min_matchmaking_time = 400ms;
    groups.request_timeout = 300ms;
  }
  return config;
}

} // namespace waggle::testing
