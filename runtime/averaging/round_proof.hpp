#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/averaging/by_view.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_protocol.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle {

/// What a member signs when it prepares `view`: that it holds the result whose digest is
/// `view.result`. The same for the same arguments on all machines.
inline std::string prepared_statement(const round_id& round, const round_view& view) {
  return "waggle prepared " + to_hex(round.view()) + " " + std::to_string(view.number) + " "
         + std::to_string(view.contributors) + " " + std::to_string(view.participants)
         + (view.adopted ? " adopted " : " ") + to_hex(view.result.view());
}

/// The signatures with which the members of a round reported what they prepared (README.md:
/// "Decisions are proven"). Not thread-safe.
class round_proof {
public:
  /// Of each participant of the view, ascending.
  using signatures = std::vector<signature>;
  using verify = std::function<bool(const peer_record& by, std::string_view, const signature&)>;

  /// A member's report. As in `round_protocol`, its first one for the highest view counts.
  void add(std::size_t member, const round_view& view, const signature& by) {
    reports_.add(member, view.number, {view.result, by});
  }
  /// `proof` was checked.
  void keep(const round_view& decided, signatures proof) {
    decided_.try_emplace(decided.number, decided, std::move(proof));
  }

  /// The proof of `decided`; zeros for signatures that are missing.
  [[nodiscard]] signatures of(const round_view& decided) const {
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

private:
  by_view<std::pair<digest, signature>> reports_; // the results, as signed
  /// By number. As many as members reported decisions under different numbers.
  std::map<std::uint32_t, std::pair<round_view, signatures>> decided_;
};

/// True if all participants of `decided`, who are a quorum, signed that they prepared it. Those
/// from which this member received it (`heard`) need no signature: a member that signs wrongly
/// cannot keep the others from a proof. Costs one verification for each other participant; none if
/// the members do not check each other (is_checked).
inline bool proves(const round_plan& plan, const round_view& decided,
                   const round_proof::signatures& proof, member_set heard,
                   const round_proof::verify& verify) {
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
