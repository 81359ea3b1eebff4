#include "runtime/allreduce/result_settlement.hpp"

#include "tests/runtime/allreduce/round_fixture.hpp"

namespace waggle {
namespace {

class ResultSettlement : public testing::round_fixture {
protected:
  void settle() {
    begin();
    settlement_.emplace(*round_);
    complete();
    settlement_->collect();
  }
  wire::round_digests list(bool other_part_0 = false) {
    auto groups = part_groups{round_->parts()};
    result_terms terms{plan_.id, round_->view().contributors, 3};
    std::vector<float> two(10, 2);
    std::vector<digest> out;
    for (std::size_t group = 0; group < groups.size(); ++group)
      out.push_back(group_digest(terms, groups[group],
                                 [&](std::uint32_t) { return std::span<const float>{two}; }));
    if (other_part_0)
      out[groups.group_of(0)] = sha256("other bytes");
    return {plan_.id, 0, out};
  }

  std::optional<result_settlement> settlement_;
};

TEST_F(ResultSettlement, ReportsASmallResultAtOnce) {
  settle();
  EXPECT_EQ(decided<round_protocol::send_prepared>(), 1U);
  ASSERT_NE(round_->protocol.reported(us), nullptr);
  EXPECT_EQ(*round_->protocol.reported(us), settlement_->plain());
  EXPECT_TRUE(port_->sent.empty());
}

TEST_F(ResultSettlement, AwaitsTheSharesOfAllForALargeOne) {
  config_.keyless_bytes_max = 0;
  settle();
  EXPECT_EQ(sent<wire::round_key_share>().size(), 2U);
  settlement_->on_share(0, {plan_.id, 0, 0, share_of(0), {}});
  EXPECT_EQ(decided<round_protocol::send_prepared>(), 0U);
  settlement_->on_share(2, {plan_.id, 0, 0, share_of(2), {}});
  EXPECT_EQ(port_->refused, std::vector{ec::protocol_violation}) << "2 cannot say what 0 says";
  settlement_->on_share(2, {plan_.id, 0, 2, share_of(2), {}});
  EXPECT_EQ(decided<round_protocol::send_prepared>(), 1U);
}

TEST_F(ResultSettlement, SuspectsTheReducerThatSentDifferentBytes) {
  settle();
  settlement_->compare();
  EXPECT_EQ(sent<wire::round_digests>().size(), 2U);
  settlement_->on_digests(0,
                          list(true)); // it reduced part 0, and says that it holds something else
  settlement_->on_digests(2, list());
  EXPECT_EQ(port_->refused, std::vector{ec::unequal_results});
  EXPECT_TRUE(round_->seen.contains(0));
}

TEST_F(ResultSettlement, BlamesNobodyIfOneHoldsWhatItsReducerSentNobodyElse) {
  settle();
  settlement_->compare();
  settlement_->on_digests(0, list());
  settlement_->on_digests(2, list(true));
  EXPECT_EQ(port_->refused,
            std::vector{ec::protocol_violation}.empty() ? port_->refused : std::vector<ec>{});
  EXPECT_TRUE(round_->seen.empty());
}

TEST_F(ResultSettlement, HashesNothingAmongProcessesOfOneUserOnOneHost) {
  plan_.one_host = true;
  plan_.reduce_by.check_share = 1;
  config_.keyless_bytes_max = 0;
  settle();
  EXPECT_EQ(settlement_->audit(), nullptr);
  EXPECT_EQ(decided<round_protocol::send_prepared>(), 1U) << "at once, without a key";
  EXPECT_TRUE(port_->sent.empty());
  EXPECT_EQ(settlement_->plain(),
            result_digest({plan_.id, round_->view().contributors, 0}, std::vector<digest>{}))
    << "of the contributors alone";
}

TEST_F(ResultSettlement, WaitsForTheLeaderOrIfItLeadsForAll) {
  config_.keyless_bytes_max = 0;
  settle();
  EXPECT_EQ(settlement_->awaited(), members_of({0}));
}

} // namespace
} // namespace waggle
