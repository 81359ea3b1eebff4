#pragma once

// The strategies and their options, as modes of the peers of a simulated swarm.

#include "runtime/training/layers.hpp"
#include "runtime/training/schedule_text.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {

struct mode {
  const char* name;
  void (*set)(training_config& config);
  bool equal_parameters = false; // of all peers of an epoch
  toy_options toy = {.parameters = 64, .micro_batch = 4};
  codec_choice codec = codec_id::none;
  /// The codec among peers of all kinds (mixed_modes_test.cpp); none: it is not tried there.
  std::optional<codec_choice> mixed = {};
};

inline const toy_options in_place{.parameters = 64, .micro_batch = 4, .in_place = true};
inline const toy_options of_matrix{.parameters = 64, .micro_batch = 4, .rows = 8};
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

inline const mode modes[] = {
  {.name = "Collaborative",
   .set = [](training_config&) {},
   .equal_parameters = true,
   .mixed = codec_id::uniform8},
  {.name = "ReusedBuffers",
   .set = [](training_config&) {},
   .equal_parameters = true,
   .toy = in_place,
   .mixed = codec_id::uniform8},
  {.name = "DelayedStepsInReusedBuffers",
   .set = [](training_config& c) { c.delay_optimizer_step = true; },
   .equal_parameters = true,
   .toy = in_place,
   .mixed = codec_id::uniform8},
  {"DelayedAllInReusedBuffers",
   [](training_config& c) {
     c.how.delay_gradients = true;
     c.delay_optimizer_step = true;
   },
   true, in_place},
  {.name = "DelayedGradients",
   .set = [](training_config& c) { c.how.delay_gradients = true; },
   .equal_parameters = true,
   .mixed = codec_id::float16},
  {"DataParallel", [](training_config& c) { c.strategy = "data-parallel"; }, true},
  {"DataParallelDelayed",
   [](training_config& c) {
     c.strategy = "data-parallel";
     c.how.delay_gradients = true;
   },
   true},
  {"DataParallelBuckets", [](training_config& c) { c.strategy = "data-parallel:buckets=1"; }, true},
  {"Diloco", [](training_config& c) { local(c, "diloco:steps=6"); }, true},
  {"DilocoOverlapped", [](training_config& c) { local(c, "diloco:steps=6,overlap=3"); }, true},
  {.name = "DilocoSparse",
   .set =
     [](training_config& c) {
       local(c, "diloco:steps=6,outer-rate=1,outer-momentum=0");
       c.schedule.peak = 0.002; // what is sent late has the size of several rounds
     },
   .equal_parameters = true,
   .codec = codec_id::sparse2},
  {"DilocoLowRank",
   [](training_config& c) {
     local(c, "diloco:steps=6,outer-rate=1,outer-momentum=0");
     c.how.coding = {2, 0.4};
   },
   true, of_matrix},
  {.name = "DilocoAdam",
   .set = [](training_config& c) { local(c, "diloco:steps=6"); },
   .equal_parameters = true,
   .toy = by_adam},
  {"Daso",
   [](training_config& c) {
     local(c, "daso:epochs=1000,batches=8,warmup=2,cooldown=1,max-skips=4,stability=0.5");
     c.schedule.peak = 0.02;
   },
   true},
  {.name = "DelayedSteps",
   .set = [](training_config& c) { c.delay_optimizer_step = true; },
   .equal_parameters = true,
   .mixed = codec_id::none},
  {.name = "DelayedGradientsAndSteps",
   .set =
     [](training_config& c) {
       c.how.delay_gradients = true;
       c.delay_optimizer_step = true;
     },
   .equal_parameters = true,
   .mixed = codec_id::uniform8},
  {.name = "LowRank",
   .set =
     [](training_config& c) {
       c.how.coding = {2, 0.4};
     },
   .equal_parameters = true,
   .toy = of_matrix,
   .mixed = codec_id::float16},
  {"LowRankDelayed",
   [](training_config& c) {
     c.how.coding = {2, 0.4};
     c.how.delay_gradients = true;
   },
   true, of_matrix},
  {.name = "LowRankDelayedSteps",
   .set =
     [](training_config& c) {
       c.how.coding = {2, 0.4};
       c.delay_optimizer_step = true;
     },
   .equal_parameters = true,
   .toy = of_matrix},
  {.name = "Lossy",
   .set = [](training_config&) {},
   .equal_parameters = true,
   .codec = codec_id::uniform8},
  {.name = "Plateau",
   .set =
     [](training_config& c) {
       c.schedule.parts = parts_of("plateau:factor=0.8,patience=3,threshold=0.3");
     },
   .equal_parameters = true},
  {.name = "PlateauDelayedSteps",
   .set =
     [](training_config& c) {
       c.schedule.parts = parts_of("plateau:factor=0.8,patience=3,threshold=0.3");
       c.delay_optimizer_step = true;
     },
   .equal_parameters = true},
  {.name = "LocalUpdates",
   .set = [](training_config& c) { local(c, "local-updates"); },
   .mixed = codec_id::uniform8},
  {.name = "LossyLocalUpdates",
   .set = [](training_config& c) { local(c, "local-updates"); },
   .codec = codec_id::float16},
  {.name = "LocalUpdatesOfThreeEpochs",
   .set =
     [](training_config& c) {
       local(c, "local-updates");
       c.how.epochs_per_round = 3;
       c.target_batch_size = 96;
       c.schedule.parts = parts_of("step:every=50,factor=0.9");
     },
   .mixed = codec_id::float16},
  {.name = "BlockingLocalUpdates",
   .set =
     [](training_config& c) {
       local(c, "local-updates");
       c.how.delay_state = false;
     },
   .mixed = codec_id::float16},
  {.name = "DecentralizedSteps",
   .set =
     [](training_config& c) {
       local(c, "decentralized-sgd");
       c.how.steps_period = 4;
       c.how.statistics = {"momentum_buffer"};
     },
   .mixed = codec_id::blockwise8},
  {.name = "DecentralizedStepsInEpochs",
   .set =
     [](training_config& c) {
       local(c, "decentralized-sgd");
       c.how.steps_period = 4;
       c.how.steps_in_epoch = 40;
       c.schedule.parts = parts_of("step:every=20,factor=0.9");
     },
   .mixed = codec_id::uniform8},
  {.name = "DecentralizedGradients",
   .set =
     [](training_config& c) {
       local(c, "decentralized-sgd");
       c.how.steps_period = 4;
       c.how.statistics = {"momentum_buffer"};
       c.how.average_gradients = true;
     },
   .mixed = codec_id::float16},
  {.name = "DecentralizedGrid",
   .set =
     [](training_config& c) {
       local(c, "decentralized-sgd");
       c.how.steps_period = 1;
       c.how.time_period = 400ms;
     },
   .mixed = codec_id::scaled_float16},
  {"DecentralizedAdam",
   [](training_config& c) {
     local(c, "decentralized-adam");
     c.how.steps_period = 4;
     c.how.statistics = {"exp_avg_sq"};
   },
   false, by_adam},
  {.name = "MoshpitSteps",
   .set =
     [](training_config& c) {
       local(c, "decentralized-sgd");
       c.how.steps_period = 8;
       c.how.statistics = {"momentum_buffer"};
       c.many_groups = true;
     },
   .mixed = codec_id::blockwise8},
  {"MoshpitSamples",
   [](training_config& c) {
     local(c, "local-updates");
     c.target_batch_size = 96;
     c.many_groups = true;
   }},
  {"BlockingMoshpit",
   [](training_config& c) {
     local(c, "local-updates");
     c.target_batch_size = 96;
     c.how.delay_state = false;
     c.many_groups = true;
   }},
  {"BlockingMoshpitGrid",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 1;
     c.how.time_period = 800ms;
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
