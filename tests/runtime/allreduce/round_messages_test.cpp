#include "runtime/allreduce/round_messages.hpp"

#include <deque>

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

const steady_time t0{};

/// Members that receive each other's messages in the order of sending.
class RoundMessages : public ::testing::Test {
protected:
  RoundMessages() {
    for (std::size_t i = 0; i < 4; ++i)
      members_.emplace_back(plan_, i, round_protocol::options{});
  }
  void perform(std::size_t who, const round_protocol::actions& actions) {
    for (const auto& action : actions) {
      if (auto word = message_of(plan_.id, action)) {
        word->to.for_each([&](std::size_t to) {
          if (to != who && to != silent_)
            under_way_.push_back({who, to, word->what});
        });
      } else if (std::holds_alternative<round_protocol::enter_view>(action)) {
        perform(
          who, members_[who].on_result_complete(members_[who].view().number, sha256("the result")));
      }
    }
  }
  void talk() {
    while (!under_way_.empty()) {
      auto word = under_way_.front();
      under_way_.pop_front();
      ++received_[word.what.index()];
      perform(word.to, receive(members_[word.to], word.from, word.what, t0));
    }
  }
  template <class Word>
  std::size_t heard() {
    return received_[wire::event{Word{}}.index()];
  }

  struct message_under_way {
    std::size_t from;
    std::size_t to;
    wire::event what;
  };
  const round_plan plan_ = plan_for(4);
  std::vector<round_protocol> members_;
  std::deque<message_under_way> under_way_;
  std::map<std::size_t, std::size_t> received_; // messages by kind
  std::size_t silent_ = 4;                      // the member that receives nothing; 4: none
};

TEST_F(RoundMessages, MembersThatReceiveEachOthersMessagesAgree) {
  for (std::size_t i = 0; i < 4; ++i)
    perform(i, members_[i].on_result_complete(0, sha256("the result")));
  talk();
  for (const auto& member : members_)
    EXPECT_TRUE(member.committed());
  EXPECT_EQ(heard<wire::round_prepared>(), 12U);
  EXPECT_GT(heard<wire::round_commit>(), 0U);
}

TEST_F(RoundMessages, CarryALossToTheLeaderAndItsViewToTheOthers) {
  silent_ = 3;
  perform(2, members_[2].on_suspicion(3, ec::stalled, t0));
  talk();
  EXPECT_EQ(heard<wire::round_suspect>(), 1U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(members_[i].committed());
    EXPECT_EQ(members_[i].view().contributor_set(), members_of({0, 1, 2}));
  }
  EXPECT_EQ(members_[0].lost().at(3), ec::stalled) << "with the reason";
}

TEST_F(RoundMessages, CarryATakeoverAndItsPromises) {
  silent_ = 0;
  for (std::size_t i = 1; i < 4; ++i)
    perform(i, members_[i].on_suspicion(0, ec::peer_lost, t0));
  talk();
  EXPECT_EQ(heard<wire::round_takeover>(), 2U);
  EXPECT_EQ(heard<wire::round_promise>(), 2U);
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_TRUE(members_[i].committed());
}

TEST_F(RoundMessages, CarryTheEndOfARound) {
  for (std::size_t lost : {3U, 2U}) {
    perform(0, members_[0].on_suspicion(lost, ec::peer_lost, t0));
    under_way_.clear();
  }
  perform(0, members_[0].on_suspicion(1, ec::peer_lost, t0)); // no other member is left
  talk();
  EXPECT_EQ(heard<wire::round_abort>(), 3U);
  EXPECT_TRUE(members_[1].ended());
  EXPECT_FALSE(members_[1].committed());
}

TEST_F(RoundMessages, APartIsNoRoundMessage) {
  EXPECT_TRUE(receive(members_[0], 1, wire::part{}, t0).empty());
}

} // namespace
} // namespace waggle
