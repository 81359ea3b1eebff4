#pragma once

#include <cstdint>
#include <vector>

#include "runtime/averaging/part_table.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// What this member has received and what is still missing in one round: contributions to the parts
/// that we reduce, parts of the result, and how long we have been waiting for each member. No data.
///
/// A contribution is the same in every view, so it is accepted once and kept. A result part counts
/// only for the set of contributors that it sums.
class transfer_state {
public:
  transfer_state(const round_plan& plan, std::size_t self, steady_time now);

  [[nodiscard]] const part_table& parts() const { return parts_; }
  [[nodiscard]] const round_view& view() const { return view_; }

  /// Switches to `view`. Result parts over other contributors are missing again; so are those of
  /// members that do not reduce them any more, unless the view is adopted: such a member may have
  /// been left out because it sent different bytes to different members.
  void enter(const round_view& view, steady_time now);

  struct outgoing_part {
    std::uint32_t part;
    std::size_t owner;
  };
  /// Our contributions that were not sent to their owners in this view yet, in the order in which
  /// to send them: one owner after another, beginning with the member after ourselves, so that the
  /// members do not all send to the same one first. Includes our own parts. Marks them as sent.
  std::vector<outgoing_part> take_outgoing();
  void give_back(const outgoing_part& unsent) {
    part_states_[unsent.part].sent_to.erase(unsent.owner);
  }

  [[nodiscard]] std::vector<std::uint32_t> owned() const;

  enum class arrival : std::uint8_t {
    accept, // and record it
    ignore, // a duplicate, or out of date; not a violation
    later,  // belongs to a view that we have not received yet
    refuse, // breaks the protocol
  };
  /// A contribution of `from` to `part`, sent in its view `number`.
  arrival contribution(std::uint32_t part, std::size_t from, std::uint32_t number, steady_time now);
  /// A part of the result over `contributors`, sent by `from` in its view `number`.
  arrival result(std::uint32_t part, std::size_t from, std::uint64_t contributors,
                 std::uint32_t number, steady_time now);

  /// True if a result of `part` over `contributors` by `from` would be accepted now.
  [[nodiscard]] bool awaits_result(std::uint32_t part, std::size_t from,
                                   std::uint64_t contributors) const;

  [[nodiscard]] bool has_result(std::uint32_t part) const { return part_states_[part].have_result; }

  /// Whether a part of the result is here that this member has sent.
  [[nodiscard]] bool has_result_of(std::size_t member) const;

  /// The accepted result part is invalid: it is missing again.
  void forget_result(std::uint32_t part);

  /// True once every part of the result over the view's contributors is here.
  [[nodiscard]] bool complete() const { return missing_results_ == 0; }

  /// Members that we have waited for too long, for contributions or for results, which may be late
  /// because another member's contributions are.
  [[nodiscard]] member_set stalled(steady_time now, milliseconds contributions,
                                   milliseconds results) const;

  /// `newcomers` that keep us waiting for contributions, while those of all others are here: for
  /// `patience`, and for as long as these took.
  [[nodiscard]] member_set late(member_set newcomers, steady_time now, milliseconds patience) const;
  /// Of `slow`, those that keep us waiting for results, while all contributions and the results of
  /// all others are here: for `patience`.
  [[nodiscard]] member_set late_results(member_set slow, steady_time now,
                                        milliseconds patience) const;

private:
  struct part_state {
    member_set contributed; // members whose contribution has arrived (parts that we reduce)
    member_set sent_to;     // owners that we sent our contribution to
    bool have_result = false;
    std::size_t result_from = 0; // the member that sent it
  };
  struct member_state {
    std::uint32_t missing_contributions = 0; // to parts that we reduce
    std::uint32_t missing_results = 0;       // parts that it reduces
    steady_time progress{};                  // last time that it sent something we waited for
  };

  void recount();
  /// A temporary owner of a part drops our contribution when it enters a view in which it does not
  /// own the part. So the contribution must be sent again if the owner may have dropped it.
  /// `in_order`: a current owner has not dropped it.
  void forget_passing_owners(bool in_order);

  part_table parts_;
  std::size_t self_;
  std::size_t members_;
  round_view view_;
  steady_time entered_; // when the view began here
  std::vector<part_state> part_states_;
  std::vector<member_state> member_states_;
  std::size_t missing_results_ = 0;
};

} // namespace waggle
