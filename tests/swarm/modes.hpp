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
  bool matrix = false;           // the model's parameters
  bool in_place = false;         // toy_options::in_place
  bool adam = false;             // toy_options::adam
  codec_choice codec = codec_id::none;
};

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
  {"Collaborative", [](training_config&) {}, true},
  {"ReusedBuffers", [](training_config&) {}, true, false, true},
  {"DelayedStepsInReusedBuffers", [](training_config& c) { c.delay_optimizer_step = true; }, true,
   false, true},
  {"DelayedAllInReusedBuffers",
   [](training_config& c) {
     c.how.delay_gradients = true;
     c.delay_optimizer_step = true;
   },
   true, false, true},
  {"DelayedGradients", [](training_config& c) { c.how.delay_gradients = true; }, true},
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
  {"DilocoLowRank",
   [](training_config& c) {
     local(c, "diloco:steps=6,outer-rate=1,outer-momentum=0");
     c.how.coding = {2, 0.4};
   },
   true, true},
  {.name = "DilocoAdam",
   .set = [](training_config& c) { local(c, "diloco:steps=6"); },
   .equal_parameters = true,
   .adam = true},
  {"Daso",
   [](training_config& c) {
     local(c, "daso:epochs=1000,batches=8,warmup=2,cooldown=1,max-skips=4,stability=0.5");
     c.schedule.peak = 0.02;
   },
   true},
  {"DelayedSteps", [](training_config& c) { c.delay_optimizer_step = true; }, true},
  {"DelayedGradientsAndSteps",
   [](training_config& c) {
     c.how.delay_gradients = true;
     c.delay_optimizer_step = true;
   },
   true},
  {"LowRank",
   [](training_config& c) {
     c.how.coding = {2, 0.4};
   },
   true, true},
  {"LowRankDelayed",
   [](training_config& c) {
     c.how.coding = {2, 0.4};
     c.how.delay_gradients = true;
   },
   true, true},
  {.name = "LowRankDelayedSteps",
   .set =
     [](training_config& c) {
       c.how.coding = {2, 0.4};
       c.delay_optimizer_step = true;
     },
   .equal_parameters = true,
   .matrix = true},
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
  {"LocalUpdates", [](training_config& c) { local(c, "local-updates"); }},
  {.name = "LossyLocalUpdates",
   .set = [](training_config& c) { local(c, "local-updates"); },
   .codec = codec_id::float16},
  {"LocalUpdatesOfThreeEpochs",
   [](training_config& c) {
     local(c, "local-updates");
     c.how.epochs_per_round = 3;
     c.target_batch_size = 96;
     c.schedule.parts = parts_of("step:every=50,factor=0.9");
   }},
  {"BlockingLocalUpdates",
   [](training_config& c) {
     local(c, "local-updates");
     c.how.delay_state = false;
   }},
  {"DecentralizedSteps",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 4;
     c.how.statistics = {"momentum_buffer"};
   }},
  {"DecentralizedStepsInEpochs",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 4;
     c.how.steps_in_epoch = 40;
     c.schedule.parts = parts_of("step:every=20,factor=0.9");
   }},
  {"DecentralizedGradients",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 4;
     c.how.average_gradients = true;
   }},
  {"DecentralizedGrid",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 1;
     c.how.time_period = 400ms;
   }},
  {"DecentralizedAdam",
   [](training_config& c) {
     local(c, "decentralized-adam");
     c.how.steps_period = 4;
     c.how.statistics = {"exp_avg_sq"};
   },
   false, false, false, true},
  {"MoshpitSteps",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 8;
     c.how.statistics = {"momentum_buffer"};
     c.many_groups = true;
   }},
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
  toy_options toy{.parameters = 64, .micro_batch = 4, .data_seed = data_seed};
  toy.rows = how.matrix ? 8 : 0;
  toy.in_place = how.in_place;
  toy.adam = how.adam;
  (in_buckets(how) ? toy.before_bucket : toy.during_pass) = std::move(during_pass);
  config.averaging->averaging.codec = how.codec;
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
