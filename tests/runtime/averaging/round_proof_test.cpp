#include "runtime/averaging/round_proof.hpp"

#include <gtest/gtest.h>

#include "runtime/averaging/part_table.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

/// Four members with real keys; their plan's records carry them.
class RoundProof : public ::testing::Test {
protected:
  RoundProof() {
    for (std::size_t i = 0; i < plan.members.size(); ++i) {
      keys.push_back(identity::from_seed(i + 1));
      plan.members[i].peer.id = keys[i]->id();
      plan.members[i].peer.key = keys[i]->key();
    }
    view = first_view(plan);
    view.result = sha256("the result");
  }

  signature by(std::size_t member, const round_view& what) const {
    return keys[member]->sign(prepared_statement(plan.id, what));
  }
  void report(std::size_t member, const round_view& what) {
    reports.add(member, what, by(member, what));
  }
  bool proven(const round_view& what, const round_proof::signatures& proof,
              member_set heard = {}) const {
    return proves(plan, what, proof, heard,
                  [](const peer_record& who, auto statement, const auto& its) {
                    return make_plain_verifier()->verify(who.key, as_byte_span(statement), its);
                  });
  }

  round_plan plan = plan_for(4);
  std::vector<std::shared_ptr<const identity>> keys;
  round_view view;
  round_proof reports;
};

TEST_F(RoundProof, IsWhatAllParticipantsSigned) {
  for (std::size_t i = 0; i < 3; ++i)
    report(i, view);
  EXPECT_FALSE(proven(view, reports.of(view))) << "one is missing";
  report(3, view);
  EXPECT_TRUE(proven(view, reports.of(view)));
}

TEST_F(RoundProof, IsNotNeededByMembersThatCanReadEachOthersKeys) {
  plan.one_host = true;
  EXPECT_FALSE(is_checked(plan));
  EXPECT_TRUE(proven(view, {}));
  view.participants = 0b0001;
  EXPECT_FALSE(proven(view, {})) << "no quorum can have decided that";
  EXPECT_FALSE(is_checked(plan_for(2)));
  EXPECT_TRUE(is_checked(plan_for(3)));
}

TEST_F(RoundProof, HoldsForOneViewOfOneRound) {
  for (std::size_t i = 0; i < 4; ++i)
    report(i, view);
  auto proof = reports.of(view);
  auto changed = [&](auto change) {
    auto other = view;
    change(other);
    return proven(other, proof);
  };
  EXPECT_FALSE(changed([](round_view& v) { v.number = 1; }));
  EXPECT_FALSE(changed([](round_view& v) { v.adopted = true; }));
  EXPECT_FALSE(changed([](round_view& v) { v.contributors = 0b0111; }));
  EXPECT_FALSE(changed([](round_view& v) { v.result = sha256("another"); }));
  auto fewer = view;
  fewer.participants = 0b0111;
  EXPECT_FALSE(proven(fewer, {proof[0], proof[1], proof[2]})) << "they signed for four";
  plan.id.bytes[0] ^= std::byte{1};
  EXPECT_FALSE(proven(view, proof));
}

TEST_F(RoundProof, NeedsEachParticipantAndAQuorum) {
  for (std::size_t i = 0; i < 4; ++i)
    report(i, view);
  auto proof = reports.of(view);
  EXPECT_FALSE(proven(view, {}));
  EXPECT_FALSE(proven(view, {proof[0], proof[1], proof[2]}));
  EXPECT_FALSE(proven(view, {proof[0], proof[1], proof[2], proof[2]})) << "one signed twice";
  auto few = view;
  few.participants = 0b1000;
  EXPECT_FALSE(proven(few, {by(3, few)})) << "one of four cannot decide";
  few.participants = 0b1'0000'0111;
  EXPECT_FALSE(proven(few, {by(0, few), by(1, few), by(2, few), by(3, few)})) << "no member";
}

TEST_F(RoundProof, AMembersFirstReportOfTheHighestViewCounts) {
  auto later = view;
  later.number = 1;
  auto other = later;
  other.result = sha256("another");
  for (std::size_t i = 0; i < 4; ++i)
    report(i, later);
  report(2, other);
  report(3, view);
  EXPECT_TRUE(proven(later, reports.of(later)));
  EXPECT_FALSE(proven(other, reports.of(other)));
  EXPECT_FALSE(proven(view, reports.of(view)));
}

TEST_F(RoundProof, AMemberThatWeHeardNeedsNoSignature) {
  for (std::size_t i = 0; i < 4; ++i)
    report(i, view);
  auto proof = reports.of(view);
  proof[2] = {};
  member_set heard;
  heard.insert(1);
  EXPECT_FALSE(proven(view, proof, heard));
  heard.insert(2);
  EXPECT_TRUE(proven(view, proof, heard));
}

TEST_F(RoundProof, PassesOnWhatItWasTold) {
  round_proof::signatures told{by(0, view), by(1, view), by(2, view), by(3, view)};
  reports.keep(view, told);
  EXPECT_EQ(reports.of(view), told);
}

} // namespace
} // namespace waggle
