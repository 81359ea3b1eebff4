#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/averaging/part_table.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/core/ids.hpp"

// Checks of sums (--check-sums); README.md says what they find.
//
//   all pledge: a digest of each contribution, a hash of their share of the key (round_pledges)
//   reducers compare the contributions with the pledges, sum, send results
//   all hold the result ─► shares are revealed ─► the key draws parts and their checkers
//   reducer ─ all contributions to the part ─► checker ─ compares with the pledges, sums again
//   all checkers ─ right ─► all prepare
//
// Nobody knows the key before all results are fixed, and nobody can choose its share afterwards. A
// reducer that has revealed its share had contributions that agree with the pledges, so it has no
// excuse: what it shows either gives the sum that it sent, or proves that it lied.

namespace waggle {

struct sum_check {
  std::uint32_t part = 0;
  std::size_t checker = 0; // never its reducer, never a client

  friend bool operator==(const sum_check&, const sum_check&) = default;
};

/// Draws which parts are checked, each with the probability `share`, and by whom; not those whose
/// contributions are sent back, which everybody sums. A pure function: all members draw the same.
/// Ascending by part.
/// @param key of the view (`result_key`); uniformly random.
/// @param checkers the members that may check: those that accept connections.
std::vector<sum_check> draw_checks(const digest& key, double share, const part_table& parts,
                                   const round_view& view, member_set checkers);

} // namespace waggle
