// What a newcomer has after its download (as hivemind's test of state downloads). Whom it asks:
// tests/runtime/progress/membership_test.cpp.

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>

#include "runtime/training/schedule_text.hpp"
#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/states.hpp"

namespace waggle::testing {
namespace {

struct Donors : training_world {
  std::shared_ptr<memory_disk> files = std::make_shared<memory_disk>();

  /// A checkpoint with these weights.
  void write_checkpoint(epoch_id epoch, float weight) {
    auto model = make_toy_learner({});
    model->write_tensor(0, std::vector<float>(8, weight));
    model->set_optimizer_steps(epoch.value());
    auto learner_state = testing::save_state(*model);
    training_state state{epoch,
                         model->schema(),
                         model->parameters_digest(),
                         {sha256("the run"), {}, {}, epoch.value() * 32},
                         learner_state};
    auto image = testing::encode_state(state);
    ASSERT_TRUE((checkpoint_store{files, "/data"}.save(borrowed_bytes{image.view()})));
  }
  std::vector<float> weights_of(const member& m) {
    auto snapshot = ask<state_snapshot>(m.actor, get_state_snapshot{});
    EXPECT_TRUE(snapshot.ok());
    std::vector<float> values(8);
    if (!snapshot.ok())
      return values;
    auto image = read_all(*snapshot->state);
    auto state = image->view().subspan(state_header_bytes);
    auto table = read_state_table(state);
    EXPECT_TRUE(table.ok());
    auto bytes = table->values_in(state, 0);
    EXPECT_EQ(bytes.size(), values.size() * sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

// Rates are no part of a state: they are a function of the epoch.
TEST_F(Donors, AJoinerHasEpochWeightsAndRateOfItsDonor) {
  write_checkpoint(epoch_id{1337}, 42);
  auto config = defaults();
  config.schedule = *make_schedule(*parse_schedule("inverse-sqrt:warmup=1"), 0.1, 0, 0);
  config.step_interval = 1s; // an epoch takes eight seconds
  config.checkpoints.emplace(files, "/data");
  auto& donor = add_started(config);
  ASSERT_EQ(status_of(donor).epoch, epoch_id{1337});
  config.checkpoints.reset();
  auto& joiner = add_started(joining(config), toy_options{.init_seed = 99, .data_seed = 2});
  spread();
  pass_until([&] { return status_of(joiner).state_downloads == 1; }, 5s);
  EXPECT_EQ(status_of(joiner).epoch, epoch_id{1337});
  EXPECT_THAT(weights_of(joiner), ::testing::Each(42));
  pass_until([&] { return all_at(1338); });
  ASSERT_FALSE(joiner.probe->rates.empty());
  EXPECT_EQ(joiner.probe->rates.front(), donor.probe->rates.front());
  EXPECT_DOUBLE_EQ(joiner.probe->rates.front(), 0.1 / std::sqrt(1337.0));
  EXPECT_EQ(status_of(joiner).parameters, status_of(donor).parameters);
}

} // namespace
} // namespace waggle::testing
