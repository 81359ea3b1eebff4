#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/averaging/by_view.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle {

/// What a member signs when it prepares `view`: that it holds the result whose digest is
/// `view.result`. The same for the same arguments on all machines.
std::string prepared_statement(const round_id& round, const round_view& view);

/// The signatures with which the members of a round reported what they prepared (README.md:
/// "Decisions are proven"). Not thread-safe.
class round_proof {
public:
  /// Of each participant of the view, ascending.
  using signatures = std::vector<signature>;
  using verify = std::function<bool(const peer_record& by, std::string_view, const signature&)>;

  /// A member's report. As in `round_protocol`, its first one for the highest view counts.
  void add(std::size_t member, const round_view& view, const signature& by);
  /// `proof` was checked.
  void keep(const round_view& decided, signatures proof);

  /// The proof of `decided`; zeros for signatures that are missing.
  [[nodiscard]] signatures of(const round_view& decided) const;

private:
  by_view<std::pair<digest, signature>> reports_; // the results, as signed
  /// By number. As many as members reported decisions under different numbers.
  std::map<std::uint32_t, std::pair<round_view, signatures>> decided_;
};

/// True if all participants of `decided`, who are a quorum, signed that they prepared it. Those
/// from which this member received it (`heard`) need no signature: a member that signs wrongly
/// cannot keep the others from a proof. Costs one verification for each other participant; none if
/// the members do not check each other (is_checked).
bool proves(const round_plan& plan, const round_view& decided, const round_proof::signatures& proof,
            member_set heard, const round_proof::verify& verify);

} // namespace waggle
