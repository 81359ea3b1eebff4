#include "runtime/allreduce/sum_audit.hpp"

#include "tests/runtime/allreduce/round_fixture.hpp"

namespace waggle {
namespace {

class SumAudit : public testing::round_fixture {
protected:
  SumAudit() {
    plan_.reduce_by.check_share = 1;
    begin();
    audit_.emplace(*round_, shares_,
                   sum_audit::events{[this] { ++right_; }, [this] { ++corrected_; }});
    round_->own.want(us, round_->view().contributor_set());
    for (std::size_t member = 0; member < 3; ++member) {
      EXPECT_TRUE(round_->own.add(us, member, 1, part_of(member, us)));
      audit_->pledges().received(us, member, digest_of(member, us));
    }
  }

  digest digest_of(std::size_t member, std::uint32_t part) const {
    return contribution_digest(1, part_of(member, part).view());
  }

  /// `member` pledges what it contributes; if `lies`, something else for part 1.
  void pledge(std::size_t member, bool lies = false) {
    std::vector<digest> list;
    for (std::uint32_t part = 0; part < 3; ++part)
      list.push_back(lies && part == us ? sha256("a lie") : digest_of(member, part));
    wire::round_pledge what{plan_.id, 0, static_cast<std::uint32_t>(member),
                            share_commitment(plan_.id, 0, member, share_of(member)), true};
    EXPECT_TRUE(audit_->pledges().on_pledge(
      member,
      {plan_.members[member].peer, what, copy_to_payload(std::as_bytes(std::span{list})), nullptr},
      what));
  }
  /// All pledge and reveal their shares; we hold the result, whose part 0 is `first`.
  void draw(float first = 2) {
    for (std::uint32_t part = 0; part < 3; ++part)
      audit_->pledges().contribute(part, digest_of(us, part));
    pledge(0);
    pledge(2);
    shares_.add(us, 0, port_->secret(plan_.id, 0));
    for (std::size_t member : {0, 2})
      shares_.add(member, 0, share_of(member));
    put(0, first);
    put(1, 2);
    put(2, 2);
    EXPECT_FALSE(audit_->sums_are_right()) << "somebody has to check";
    for (const auto& [part, checker] :
         draw_checks(result_key(shares_, round_->view()), 1, round_->parts(), round_->view(),
                     member_set::first(3)))
      (checker == us ? ours_ : others_).insert(part);
  }
  void show_one(std::size_t from, std::uint32_t part, std::size_t member, const payload& values) {
    auto head = round_->header(part, wire::part_kind::evidence);
    head.member = static_cast<std::uint32_t>(member);
    head.weight = 1;
    audit_->on_evidence(from, {plan_.members[from].peer, head, values, nullptr}, head);
  }
  void show(std::uint32_t part) {
    for (std::size_t member = 0; member < 3; ++member)
      show_one(round_->parts().owner(part, round_->view()), part, member, part_of(member, part));
  }

  by_view<digest> shares_;
  std::optional<sum_audit> audit_;
  std::set<std::uint32_t> ours_; // the parts that we check
  std::set<std::uint32_t> others_;
  int right_ = 0;
  int corrected_ = 0;
};

TEST_F(SumAudit, PledgesOnceAllPartsAreContributed) {
  audit_->pledges().contribute(0, digest_of(us, 0));
  audit_->pledges().contribute(1, digest_of(us, 1));
  EXPECT_TRUE(sent<wire::round_pledge>().empty());
  audit_->pledges().contribute(2, digest_of(us, 2));
  EXPECT_EQ(sent<wire::round_pledge>().size(), 2U) << "to both others";
}

TEST_F(SumAudit, RefusesAPledgeOfAnotherLengthAndWaitsForTheRightOne) {
  struct wrong {
    std::size_t bytes;
    bool contributes;
  };
  for (auto each : {wrong{2 * digest::size, true},
                    {4 * digest::size, true},
                    {3 * digest::size - 1, true},
                    {0, true},
                    {3 * digest::size, false}}) {
    port_->refused.clear();
    std::vector<std::byte> list(each.bytes);
    wire::round_pledge what{plan_.id, 0, 2, share_commitment(plan_.id, 0, 2, share_of(2)),
                            each.contributes};
    EXPECT_FALSE(audit_->pledges().on_pledge(
      2, {plan_.members[2].peer, what, copy_to_payload(list), nullptr}, what));
    EXPECT_EQ(port_->refused, std::vector{ec::protocol_violation}) << each.bytes;
    EXPECT_TRUE(audit_->pledges().missing().contains(2));
  }
}

TEST_F(SumAudit, AccusesWhoContributedSomethingElseThanItPledged) {
  for (std::uint32_t part = 0; part < 3; ++part)
    audit_->pledges().contribute(part, digest_of(us, part));
  pledge(0);
  pledge(2, true);
  EXPECT_FALSE(audit_->pledges().own_parts_agree());
  EXPECT_EQ(port_->refused, std::vector{ec::protocol_violation});
  EXPECT_TRUE(round_->seen.contains(2));
}

TEST_F(SumAudit, SaysThatTheSumsAreRightOnceAllEvidenceGivesThem) {
  draw();
  for (auto part : ours_)
    show(part);
  EXPECT_EQ(static_cast<std::size_t>(right_), ours_.size());
  EXPECT_TRUE(audit_->on_checked(0, 0) && audit_->on_checked(2, 0));
  EXPECT_FALSE(audit_->on_checked(0, 0)) << "no news";
  EXPECT_TRUE(audit_->sums_are_right());
  EXPECT_EQ(sent<wire::round_checked>().size(), ours_.empty() ? 0U : 2U);
  EXPECT_TRUE(port_->refused.empty());
}

TEST_F(SumAudit, ChallengesASumThatTheContributionsDoNotGive) {
  draw(2.5F);
  if (!ours_.contains(0)) { // its owner is 0, so 2 checks it
    audit_->on_challenge(2, {plan_.id, 0, 0});
    show(0);
    EXPECT_EQ(port_->refused, std::vector{ec::wrong_sum}) << "we saw it ourselves";
    return;
  }
  show(0);
  ASSERT_EQ(sent<wire::round_challenge>().size(), 2U);
  EXPECT_EQ(sent<wire::round_challenge>()[0].part, 0U);
  EXPECT_TRUE(port_->refused.empty()) << "the others will see for themselves";
}

TEST_F(SumAudit, ChallengesAnOwnerThatShowsNothing) {
  draw();
  now_ += config_.stall_timeout;
  audit_->on_tick();
  EXPECT_EQ(sent<wire::round_challenge>().size(), 2 * ours_.size());
}

TEST_F(SumAudit, AccusesAnOwnerThatShowsOnePieceAfterTheOther) {
  draw();
  now_ += config_.stall_timeout;
  if (ours_.contains(0))
    audit_->on_tick(); // its owner shows us nothing, so we challenge it
  else
    audit_->on_challenge(2, {plan_.id, 0, 0});
  for (std::size_t member = 0; member < 2; ++member) {
    now_ += config_.stall_timeout * 3 / 2;
    show_one(0, 0, member, part_of(member, 0));
  }
  EXPECT_FALSE(round_->seen.contains(0));
  now_ += config_.stall_timeout;
  audit_->on_tick();
  EXPECT_TRUE(round_->seen.contains(0)) << "the time for all of it is over";
}

} // namespace
} // namespace waggle
