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

/// What has arrived and what is still missing in one round, here: which contributions to the parts
/// we reduce, which parts of the result, and for whom we have been waiting how long. No data.
///
/// A contribution is the same in every view, so it is accepted once and kept. A result part counts
/// only for the set of contributors that it sums.
class transfer_state {
public:
  transfer_state(const round_plan& plan, std::size_t self, steady_time now);

  [[nodiscard]] const part_table& parts() const { return parts_; }
  [[nodiscard]] const round_view& view() const { return view_; }

  /// Goes over to `view`. Result parts over other contributors are missing again.
  void enter(const round_view& view, steady_time now);

  struct outgoing_part {
    std::uint32_t part;
    std::size_t owner;
  };
  /// Our contributions that their owners in this view have not been sent yet, in the order in which
  /// to send them: owners in turn, beginning behind ourselves, so that not everybody sends to the
  /// same member first. Ourselves included. Marks them as sent.
  std::vector<outgoing_part> take_outgoing();
  /// It was taken, and not sent.
  void give_back(const outgoing_part& unsent) {
    part_states_[unsent.part].sent_to.erase(unsent.owner);
  }

  /// Parts that we reduce in this view.
  [[nodiscard]] std::vector<std::uint32_t> owned() const;

  enum class verdict : std::uint8_t {
    accept, // and it is entered
    ignore, // a duplicate, or out of date: nobody's fault
    later,  // belongs to a view that we have not heard of yet
    refuse, // breaks the protocol
  };
  /// A contribution of `from` to `part`, sent in its view `number`.
  verdict contribution(std::uint32_t part, std::size_t from, std::uint32_t number, steady_time now);
  /// A part of the result over `contributors`, sent by `from` in its view `number`.
  verdict result(std::uint32_t part, std::size_t from, std::uint64_t contributors,
                 std::uint32_t number, steady_time now);

  /// True if a result of `part` over `contributors` by `from` would be accepted now.
  [[nodiscard]] bool awaits_result(std::uint32_t part, std::size_t from,
                                   std::uint64_t contributors) const;

  /// The accepted result part turned out to be nonsense: it is missing again.
  void forget_result(std::uint32_t part);

  /// True once every part of the result over the view's contributors is here.
  [[nodiscard]] bool complete() const { return missing_results_ == 0; }

  /// Members that we wait for and that have let us wait for too long: `stall_timeout` for their
  /// contributions, twice that for results, which may be late because of somebody else's
  /// contributions (spec/averaging.md §5.6: sender and reducer timeout).
  [[nodiscard]] std::vector<std::size_t> stalled(steady_time now, milliseconds stall_timeout) const;

private:
  struct part_state {
    member_set contributed; // members whose contribution is here (parts that we reduce)
    member_set sent_to;     // owners that were sent ours
    bool have_result = false;
  };
  struct member_state {
    std::uint32_t missing_contributions = 0; // to parts that we reduce
    std::uint32_t missing_results = 0;       // parts that it reduces
    steady_time progress{};                  // last time it sent something we waited for
  };

  void recount();
  /// Whoever reduces a part for another drops our contribution if it comes by way of a view in
  /// which it does not; so it is sent again when it may have. `in_order`: it has not, if its turn
  /// is now.
  void forget_passing_owners(bool in_order);

  part_table parts_;
  std::size_t self_;
  std::size_t members_;
  round_view view_;
  std::vector<part_state> part_states_;
  std::vector<member_state> member_states_;
  std::size_t missing_results_ = 0;
};

} // namespace waggle
