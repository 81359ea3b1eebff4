#pragma once

#include <deque>
#include <set>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// Whom to ask for a place in a group, one peer after another: those who were named, and the
/// leaders that they send us on to. Nobody is asked twice, and nobody can send us on for ever. Not
/// thread-safe.
class entry_search {
public:
  /// So many peers that others named are asked; what they say may be made up.
  static constexpr std::size_t suggestions_max = 16;

  /// @param through in order of preference.
  /// @param branch of the history that the group must train.
  entry_search(std::vector<peer_record> through, const digest& branch, const peer_id& self);

  /// Goes on to the next one. False: nobody is left, see why().
  [[nodiscard]] bool next();
  /// Whom we ask now. REQUIRES: next() was true.
  [[nodiscard]] const peer_record& asked() const { return asked_; }
  [[nodiscard]] bool asks(const peer_id& who) const { return asked_.id == who; }
  [[nodiscard]] const digest& branch() const { return branch_; }
  /// Whom we ask does not let us in. With ec::not_a_leader the first of `suggested` is asked next.
  void refused(failure why, const std::vector<peer_record>& suggested = {});
  /// Of the last one who was asked.
  [[nodiscard]] const failure& why() const { return why_; }

private:
  digest branch_;
  std::deque<peer_record> waiting_;
  std::set<peer_id> seen_; // asked, or ourselves
  peer_record asked_;
  std::size_t suggestions_ = 0;
  failure why_{ec::no_donor, "nobody was named"};
};

} // namespace waggle
