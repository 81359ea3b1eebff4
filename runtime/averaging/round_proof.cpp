#include "runtime/averaging/round_proof.hpp"

#include "runtime/averaging/round_protocol.hpp"

namespace waggle {

std::string prepared_statement(const round_id& round, const round_view& view) {
  return "waggle prepared " + to_hex(round.view()) + " " + std::to_string(view.number) + " "
         + std::to_string(view.contributors) + " " + std::to_string(view.participants)
         + (view.adopted ? " adopted " : " ") + to_hex(view.result.view());
}

void round_proof::add(std::size_t member, const round_view& view, const signature& by) {
  reports_.add(member, view.number, {view.result, by});
}

void round_proof::keep(const round_view& decided, signatures proof) {
  decided_.try_emplace(decided.number, decided, std::move(proof));
}

round_proof::signatures round_proof::of(const round_view& decided) const {
  auto told = decided_.find(decided.number);
  if (told != decided_.end() && told->second.first == decided)
    return told->second.second;
  signatures out;
  decided.participant_set().for_each([&](std::size_t member) {
    const auto* report = reports_.find(member, decided.number);
    bool signed_it = report != nullptr && report->first == decided.result;
    out.push_back(signed_it ? report->second : signature{});
  });
  return out;
}

bool proves(const round_plan& plan, const round_view& decided, const round_proof::signatures& proof,
            member_set heard, const round_proof::verify& verify) {
  auto participants = decided.participant_set();
  if (!member_set::first(plan.members.size()).contains(participants)
      || !round_rules{plan}.is_quorum(participants))
    return false;
  if (!is_checked(plan))
    return true;
  if (proof.size() != participants.size())
    return false;
  auto statement = prepared_statement(plan.id, decided);
  bool good = true;
  auto next = proof.begin();
  participants.for_each([&](std::size_t member) {
    good = good && (heard.contains(member) || verify(plan.members[member].peer, statement, *next));
    ++next;
  });
  return good;
}

} // namespace waggle
