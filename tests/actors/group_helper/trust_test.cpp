// Which states of its members a group_helper passes on. tests/runtime/progress/help_choice_test.cpp
// has whose claims it believes.

#include "runtime/training/state_table.hpp"
#include "tests/actors/group_helper/group_helper_fixture.hpp"

namespace waggle::testing {
namespace {

// Peers that average parameters are only approximately equal. The node is not told what they do.
TEST_F(GroupHelper, StatesOfWhichNoTwoAreEqualAreNotComparedForAWhile) {
  help_three();
  for (std::uint64_t n = 2; n < 5; ++n)
    images[test_peer(n).id] = image_of("a", 4, static_cast<int>(n));
  ASSERT_TRUE(get_state().ok());
  EXPECT_GE(donors.size(), 4U);
  auto asked_once = [&] {
    donors.clear();
    pass(31s); // the state is dropped
    EXPECT_TRUE(get_state().ok());
    return donors.size() == 1;
  };
  EXPECT_TRUE(asked_once());
  EXPECT_TRUE(asked_once());
  pass(10min);
  EXPECT_FALSE(asked_once());
}

// As those of --strategy diloco, whose peers step by themselves from a common anchor.
TEST_F(GroupHelper, StatesThatShareTheirParametersAreComparedByThese) {
  help_three();
  const state_table table{{{"w", {2}, state_tensor::kind::parameter},
                           {"outer/momentum/w", {2}, state_tensor::kind::outer},
                           {"exp_avg/w", {2}, state_tensor::kind::statistic}}};
  auto image_with = [&](float shared, float own) {
    const float values[] = {shared, 2, 3, 4, own, own};
    auto learner = table.header(sha256("schema"), 1);
    learner.append(as_string_view(std::as_bytes(std::span{values})));
    auto parameters = sha256(std::as_bytes(std::span{values}).first(4 * sizeof(float)));
    return image_of("a", 4, as_byte_span(learner), parameters);
  };
  for (std::uint64_t n = 2; n < 5; ++n)
    images[test_peer(n).id] = image_with(n == 2 ? 66 : 1, static_cast<float>(n));
  auto got = get_state();
  EXPECT_TRUE(got->content == sha256(images[test_peer(3).id].view())
              || got->content == sha256(images[test_peer(4).id].view()));
  EXPECT_EQ(exported(*ctx.metrics, "waggle_training_disbelieved_peers"), 1) << "peer 2";
}

TEST_F(GroupHelper, AStateOfAnotherHistoryIsNotPassedOn) {
  help_two();
  hold_state("another", 4);
  EXPECT_EQ(get_state().error().code, ec::wrong_run);
  EXPECT_EQ(exported(*ctx.metrics, "waggle_training_disbelieved_peers"), 1);
}

TEST_F(GroupHelper, AStateThatIsNotAsOfferedIsNotPassedOn) {
  help_two();
  hold_state("a", 4);
  image_epoch = epoch_id{5};
  EXPECT_EQ(get_state().error().code, ec::malformed);
  image_epoch = epoch_id{4};
  image_parameters = sha256("others");
  EXPECT_EQ(get_state().error().code, ec::malformed);
  image_parameters = {};
  EXPECT_TRUE(get_state().ok());
}

} // namespace
} // namespace waggle::testing
