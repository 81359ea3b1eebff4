#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/allreduce/inbound_event.hpp"
#include "runtime/allreduce/round_engine.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// All rounds of one peer by id: running rounds, finished rounds, and messages for rounds that have
/// not begun here. All messages about rounds pass through here, on the thread that read them.
///
/// Thread-safe. Rounds, listeners and answers are called without the lock: sums take long.
class round_registry {
public:
  struct limits {
    /// A group's leader may begin a round before a member has received the plan. Events for an
    /// unknown round are kept this long. That includes takeovers: if this peer answered at once
    /// that it does not know the round, it would be left out of a round that it is about to begin.
    milliseconds parked_for{10'000};
    /// Events kept for unknown rounds, of each peer with which this one has averaged. One that is a
    /// round ahead sends its parts of a whole vector; their bytes are bounded by its link's window.
    std::size_t parked_events_max = 4096;
    /// The same for a stranger, which may be about to enter the group, and for all strangers
    /// together: anybody can make up identities and ids of rounds.
    std::size_t stranger_events_max = 1024;
    std::size_t strangers_events_max = 4096;
    /// Their encoded messages and bodies. More than the bodies that links may read for strangers
    /// (net::stranger_budget), so that those are read later instead of being dropped here.
    std::size_t strangers_bytes_max = 24_MiB;
    /// How long a finished round still answers members that missed its end.
    milliseconds remembered_for{60'000};
    /// Nobody is a stranger: a list says who belongs to the run, and only they have links.
    bool all_known = false;
  };
  using reply = std::function<void(const peer_record& to, wire::event what)>;
  /// Receives messages of a round's members about their group (bandwidth_report), also after the
  /// end of the round.
  using group_listener = std::function<void(const peer_record& who, const wire::event& message)>;

  /// @param members_changed called without a lock after a round has begun or is expected: more
  /// peers have averaged with this one, or are about to. May be empty.
  round_registry(limits limits, reply answer, std::function<void()> members_changed = {})
    : limits_(limits), answer_(std::move(answer)), members_changed_(std::move(members_changed)) {}

  /// Registers `round`, begins it, and passes on the events that have arrived for it already.
  void begin(const std::shared_ptr<round_engine>& round, const group_listener& on_group);
  /// The round reported how it ended, or will not begin here.
  void finish(const round_id& id, const wire::round_promise& promise, steady_time now);

  /// A round of this plan is going to begin. What its members send of it before it begins here is
  /// not counted as that of strangers: a large model's first round would not have a place there.
  /// The plan replaces the one before with its prefix, and is no evidence of anything else.
  /// @param on_group receives what its members say about the group before it begins.
  void expect(const round_plan& plan, const group_listener& on_group = {});
  /// Whether a message of `peer` about round `id` with a body of this size is kept as that of an
  /// expected round.
  [[nodiscard]] bool expects(const peer_id& peer, const round_id& id, std::size_t bytes) const;
  /// Whether this round has begun here, or is the next one of a plan.
  [[nodiscard]] bool takes_part_in(const round_id& id) const;
  /// Whether this peer has reported that it holds the result of the round, which runs or has ended.
  [[nodiscard]] bool was_prepared(const round_id& id) const;
  /// Whether a round of which `peer` was a member has begun here, or limits::all_known. The last
  /// `members_max` such peers are remembered.
  [[nodiscard]] bool has_averaged_with(const peer_id& peer) const;
  static constexpr std::size_t members_max = 1024;

  /// A part or round_* event. False: dropped, not about a round or no room.
  bool deliver(const inbound_event& event, steady_time now);
  /// `event` for `peer` was dropped, because none of its addresses answers.
  void unreached(const peer_id& peer, const wire::event& event);
  std::shared_ptr<std::byte> destination(const peer_id& from, const wire::part& head,
                                         std::size_t bytes);
  bool zero_copy_ok(const wire::part& head);

  /// Drops expired entries. Returns how many events were dropped undelivered.
  std::size_t forget_old(steady_time now);

  [[nodiscard]] std::size_t size() const {
    std::lock_guard guard{mutex_};
    return rounds_.size();
  }

private:
  struct parked_event {
    inbound_event event;
    bool of_stranger = false; // when it was parked
  };
  struct tally {
    std::size_t events = 0;
    std::size_t bytes = 0; // of the messages and their bodies
  };
  struct entry {
    std::shared_ptr<round_engine> running; // null: ended, or not begun
    bool begins = false; // it takes what was parked for it, and what arrives meanwhile is parked
    std::optional<wire::round_promise> promise; // set once the round has ended
    group_listener on_group;                    // empty if not begun
    std::vector<parked_event> parked;           // for a round that has not begun
    steady_time since;                          // first event parked, or round ended
  };

  [[nodiscard]] bool is_known(const peer_id& peer) const {
    return limits_.all_known || members_.contains(peer);
  }
  std::shared_ptr<round_engine> running(const round_id& id);
  void park(entry& where, const inbound_event& event, bool of_stranger, steady_time now);
  [[nodiscard]] tally parked_of(const peer_id& peer) const;
  [[nodiscard]] bool has_room(const inbound_event& event, bool of_stranger) const;
  [[nodiscard]] bool is_expected(const peer_id& peer, const round_id& id, std::size_t bytes) const;
  [[nodiscard]] group_listener listener_of_expected(const peer_id& peer, const round_id& id) const;
  void drop_heaviest_stranger(const inbound_event& in_favour_of, std::vector<parked_event>& gone);
  void forget(const parked_event& parked);
  std::vector<parked_event> take_parked(entry& from);
  void remember_members(const round_plan& plan);
  void catch_up(const std::shared_ptr<round_engine>& round, const group_listener& on_group);
  static void pass_on(round_engine& round, const group_listener& on_group,
                      const inbound_event& event);
  void answer_late(const wire::round_promise& promise, const inbound_event& event) const;

  const limits limits_;
  const reply answer_;
  const std::function<void()> members_changed_;
  mutable std::mutex mutex_;
  std::map<round_id, entry> rounds_;
  std::map<peer_id, tally> parked_; // no entry without events
  struct stranger {
    std::string host;
    tally held; // without what was expected
  };
  std::map<peer_id, stranger> strangers_by_peer_;  // no entry without events
  std::map<std::string, tally> strangers_by_host_; // the same
  tally strangers_;                                // all of them together
  std::size_t dropped_ = 0;                        // undelivered, not reported yet
  std::map<peer_id, std::uint64_t> members_;       // the number of the last round with each
  struct expected_round {
    round_id id;
    std::set<peer_id> members;
    std::size_t bytes_max = 0; // of a member: its contributions and its results
    group_listener on_group;
  };
  std::map<std::string, expected_round> expected_; // by prefix
  std::uint64_t rounds_begun_ = 0;
};

/// The round that `event` is about; nothing if it is about something else.
const round_id* round_of(const wire::event& event);

} // namespace waggle
