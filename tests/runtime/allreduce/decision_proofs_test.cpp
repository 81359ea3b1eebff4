#include "runtime/allreduce/decision_proofs.hpp"

#include "tests/runtime/allreduce/round_fixture.hpp"

namespace waggle {
namespace {

class DecisionProofs : public testing::round_fixture {
protected:
  DecisionProofs() { start(); }
  void start() {
    begin();
    proofs_.emplace(*round_);
    decided_view_ = round_->view();
    decided_view_.result = sha256("the result");
  }
  round_proof::signatures signatures() const {
    round_proof::signatures out;
    for (const auto& member : plan_.members)
      out.push_back(
        testing::fake_signature(member.peer.id, prepared_statement(plan_.id, decided_view_)));
    return out;
  }

  std::optional<decision_proofs> proofs_;
  round_view decided_view_;
};

TEST_F(DecisionProofs, BelieveADecisionThatAllHaveSigned) {
  proofs_->on_commit(0, {plan_.id, decided_view_, signatures()});
  EXPECT_EQ(decided<round_protocol::fail>(), 1U) << "it was decided without our result";
  EXPECT_TRUE(port_->refused.empty());
  EXPECT_EQ(proofs_->of(decided_view_), signatures()) << "kept for those that ask";
}

TEST_F(DecisionProofs, BelieveNoOther) {
  auto forged = signatures();
  forged[2] = forged[0];
  proofs_->on_commit(0, {plan_.id, decided_view_, forged});
  EXPECT_TRUE(decided_.empty());
  EXPECT_EQ(port_->refused, std::vector{ec::bad_signature});
  proofs_->on_commit(0, {plan_.id, decided_view_, signatures()});
  EXPECT_TRUE(decided_.empty()) << "who has lied once costs no more time";
}

TEST_F(DecisionProofs, NeedNoSignatureOfAMemberThatToldUsItself) {
  for (std::size_t member : {0, 2})
    proofs_->on_prepared(member, testing::prepared_by(member, plan_, decided_view_));
  auto half = signatures();
  half[0] = half[2] = {};
  proofs_->on_commit(0, {plan_.id, decided_view_, half});
  EXPECT_EQ(decided<round_protocol::fail>(), 1U);
}

TEST_F(DecisionProofs, AreNeitherMadeNorNeededInARoundThatIsNotChecked) {
  plan_.one_host = true;
  start();
  wire::event message = wire::round_prepared{plan_.id, 0, decided_view_.result, {}};
  proofs_->sign(round_protocol::send_prepared{{}, decided_view_}, message);
  EXPECT_EQ(std::get<wire::round_prepared>(message).by, signature{});
  proofs_->on_commit(0, {plan_.id, decided_view_, signatures()});
  EXPECT_EQ(decided<round_protocol::fail>(), 1U);
  EXPECT_EQ(proofs_->of(decided_view_), round_proof::signatures(3)) << "nor kept";
}

} // namespace
} // namespace waggle
