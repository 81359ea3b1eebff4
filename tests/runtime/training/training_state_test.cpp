#include "runtime/training/training_state.hpp"

#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "runtime/training/step_count.hpp"
#include "tests/support/states.hpp"

namespace waggle {
namespace {

const std::string learner_bytes = "parameters and statistics";

training_state example() {
  history past{sha256("branch"), sha256("parent"), epoch_id{5}, 1234, 5678};
  return {epoch_id{7}, sha256("schema"), sha256("parameters"), past, as_byte_span(learner_bytes)};
}

std::string image_of(const training_state& state) {
  return std::string{as_string_view(testing::encode_state(state).view())};
}

TEST(TrainingState, IsReadBack) {
  auto image = image_of(example());
  auto state = decode_state(as_byte_span(image));
  EXPECT_EQ(state->epoch, epoch_id{7});
  EXPECT_EQ(state->schema, sha256("schema"));
  EXPECT_EQ(state->parameters, sha256("parameters"));
  EXPECT_EQ(state->past, example().past);
  EXPECT_EQ(as_string_view(state->learner), learner_bytes);
}

TEST(TrainingState, MoreStepsThanAnyRunMakesAreRefused) {
  auto state = example();
  state.past.steps = counted_steps_max;
  EXPECT_TRUE(decode_state(as_byte_span(image_of(state))).ok());
  ++state.past.steps;
  EXPECT_EQ(decode_state(as_byte_span(image_of(state))).error().code, ec::malformed);
}

TEST(TrainingState, AnEmptyLearnerStateIsAllowed) {
  auto state = example();
  state.learner = {};
  EXPECT_TRUE(decode_state(as_byte_span(image_of(state))).ok());
}

TEST(TrainingState, EveryShorterImageIsRefused) {
  auto image = image_of(example());
  for (std::size_t n = 0; n < image.size(); ++n)
    EXPECT_EQ(decode_state(as_byte_span(std::string_view{image}.substr(0, n))).error().code,
              ec::malformed)
      << n << " bytes";
}

TEST(TrainingState, ALongerImageIsRefused) {
  auto image = image_of(example()) + "x";
  EXPECT_EQ(decode_state(as_byte_span(image)).error().code, ec::malformed);
}

TEST(TrainingState, EveryFlippedBitIsFoundAlsoInTheEpochAndTheDigests) {
  auto image = image_of(example());
  for (std::size_t i = 0; i < image.size() * 8; ++i) {
    auto damaged = image;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1U << (i % 8)));
    EXPECT_FALSE(decode_state(as_byte_span(damaged)).ok()) << "bit " << i;
  }
}

TEST(TrainingState, AnEnormousLengthIsMalformed) {
  auto image = image_of(example());
  auto huge = std::numeric_limits<std::uint64_t>::max();
  std::memcpy(image.data() + state_header_bytes - 32 - 8, &huge, sizeof huge);
  EXPECT_EQ(decode_state(as_byte_span(image)).error().code, ec::malformed);
}

} // namespace
} // namespace waggle
