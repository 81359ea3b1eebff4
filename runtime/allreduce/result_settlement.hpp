#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/allreduce/result_repair.hpp"
#include "runtime/allreduce/round_state.hpp"
#include "runtime/allreduce/sum_audit.hpp"
#include "runtime/averaging/result_comparison.hpp"
#include "runtime/averaging/result_digest.hpp"

namespace waggle {

/// What follows when a member's result is complete: the members agree that they hold the same.
///
///   small result ─ digest ──────────────────────────────────────► round_protocol ─► prepared
///   large result ─ our share of the key ─► shares of all ─ digest ┘
///   digests differ ─► compare: all list what they hold ─► judge ─► a reducer is at fault: suspect it
///                                                    └► most agree: the leader proposes that
///   adopted, and we hold something else ─► repair ─► who holds it sends what differs ─► prepared
///
/// Whoever leads sends what differs, if nobody is assumed to lie. Otherwise a result is *settled*
/// by what members signed: nothing is summed any more, and we ask as many of those that hold it as
/// may lie, and one more.
///
/// Not thread-safe.
class result_settlement {
public:
  /// `round` must outlive this.
  explicit result_settlement(round_state& round);
  result_settlement(const result_settlement&) = delete;
  result_settlement& operator=(const result_settlement&) = delete;

  /// Whether digests of the plan's results have a key: large ones, and those whose sums are
  /// checked.
  [[nodiscard]] static bool is_keyed(const round_plan& plan, const round_config& config);
  /// Null: this round's sums are not checked.
  [[nodiscard]] sum_audit* audit() { return audit_ ? &*audit_ : nullptr; }
  [[nodiscard]] const sum_audit* audit() const { return audit_ ? &*audit_ : nullptr; }
  /// True if the result of the current view was adopted because of what members signed.
  [[nodiscard]] bool is_settled() const {
    return round_.protocol.rules().faulty > 0 && round_.view().adopted;
  }
  /// The digest without a key of the result that we hold; of its contributors alone if nothing is
  /// checked (why_unchecked).
  [[nodiscard]] digest plain() { return result_digest(terms(), own_groups()); }
  /// The members whose messages are awaited before the round can end. REQUIRES: our result is
  /// complete, or settled.
  [[nodiscard]] member_set awaited() const;

  /// The result may have become complete.
  void collect();
  void on_share(std::size_t from, const wire::round_key_share& what);
  void on_pledge_digests(std::size_t from, const wire::round_pledge_digests& what);
  void on_checked(std::size_t from, std::uint32_t view);

  /// The members hold different results: all list what they hold.
  void compare();
  void on_digests(std::size_t from, const wire::round_digests& what);
  /// The adopted result is another one than ours.
  void ask_for_repair();
  /// To those that asked before we held the result ourselves.
  void send_repairs();
  /// Releases the event.
  void on_repair(std::size_t from, const inbound_event& event, const wire::part& head);

  /// The round goes on with `next`; to be called before and after the transfers enter it.
  void leave(const round_view& next);
  void enter(std::uint32_t before, bool same_sum);

private:
  [[nodiscard]] result_terms terms() const;
  [[nodiscard]] part_values values() const;
  const std::vector<digest>& own_groups();
  [[nodiscard]] bool keyed() const { return is_keyed(round_.plan(), round_.config); }
  [[nodiscard]] bool audited() const { return audit_ && audit_->pledges().applies(); }
  [[nodiscard]] bool has_shared() const { return shared_ == round_.view().number; }
  [[nodiscard]] member_set unlisted() const;
  [[nodiscard]] bool lists_agree(std::uint32_t compared) const;
  void prepare();
  void hold(const digest& result);
  void rename(const digest& result);
  void judge();
  void ask_holders();
  void send_repair(std::size_t to);
  void on_settled_digests(std::size_t from, const wire::round_digests& what);
  void take_repaired();

  round_state& round_;
  part_groups groups_;
  by_view<digest> shares_; // of the key
  std::optional<sum_audit> audit_;
  std::vector<digest> own_groups_;      // of the result that we hold; empty: not computed
  std::optional<digest> digest_;        // that we have reported for it
  std::optional<std::uint32_t> shared_; // the view for which we have sent our share
  result_lists lists_;
  bool comparing_ = false; // in the current view; so are the next two
  bool judged_ = false;
  bool repairing_ = false;
  std::optional<result_repair> repair_; // of a settled result
  member_set repaired_;                 // members that we have sent what they lack
};

} // namespace waggle
