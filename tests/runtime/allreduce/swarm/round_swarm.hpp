#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/allreduce/round_registry.hpp"
#include "tests/runtime/allreduce/swarm/round_scenario.hpp"

namespace waggle::testing {

class round_swarm;

/// A bug planted in the members: changes the messages that they send and receive as if they had it.
/// All members have it. This base class does nothing.
class saboteur {
public:
  virtual ~saboteur() = default;
  /// A message that `from` is about to send; false: it is not sent. Called by its engine: must not
  /// call it.
  virtual bool on_send(round_swarm&, std::size_t /*from*/, std::size_t /*to*/, wire::event&,
                       payload&) {
    return true;
  }
  /// A message that `to` is about to receive; false: it is dropped.
  virtual bool on_arrival(round_swarm&, std::size_t /*to*/, std::size_t /*from*/, inbound_event&) {
    return true;
  }
  /// A part that `member` has reduced; its values may be changed.
  virtual void on_reduced(std::size_t /*member*/, const reduced_part&) {}
  /// Whether this member checks its clock.
  virtual bool ticks(std::size_t /*member*/) { return true; }
};

/// The engines of one round, on virtual time, in one thread, over a network with faults. In all
/// cases the following must hold:
///
/// 1. *No mixed round.* All members that finish have the same contributors, weight and bytes, and
///    these are the aggregate over that set, computed again from the inputs. When any member
///    finishes, a quorum of the members has prepared that set. The first view's set is reported as
///    complete, any other as shrunk.
/// 2. *No hang.* Every live member reports, once, by its deadline.
/// 3. *No exclusion without cause.* A member is blameless if it is neither crashed, frozen beyond
///    the detectors' time, cancelled, broken off, absent or gone, nor at the end of a link that was
///    lost or slower than the stall timeout, nor on the side of a split that is no quorum. If the
///    blameless are a quorum and any member finished, all of them finish, and contribute unless
///    they are auxiliaries. With at most one fault they finish in any case.
/// 4. *Recovery in time.* The blameless finish within the sum of the faults' `recovery_bound` and
///    the transfer, from the last fault on.
/// 5. *Failure has no effect.* A member that fails has a reason and no values; inputs never change;
///    every body is released exactly once; engines and their buffers are freed.
class round_swarm final : private round_net::listener {
public:
  explicit round_swarm(round_scenario scene, saboteur* planted = nullptr);
  ~round_swarm() override;
  round_swarm(const round_swarm&) = delete;
  round_swarm& operator=(const round_swarm&) = delete;

  void run();
  /// To be called before the run: records every event of the round, not only the first violation.
  void keep_journal() { journal_.emplace(); }
  [[nodiscard]] std::string journal() const { return journal_.value_or(""); }

  /// The first violation; empty if there was none.
  [[nodiscard]] const std::string& violation() const { return violation_; }
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] const round_scenario& scene() const { return scene_; }
  [[nodiscard]] std::uint64_t trace_hash() const { return net_.trace_hash(); }
  [[nodiscard]] std::size_t finished() const;
  [[nodiscard]] bool shrunk() const;
  [[nodiscard]] const std::vector<fault>& struck() const { return struck_; }
  /// From the last fault until the blameless have ended; zero if they ended before it.
  [[nodiscard]] round_net::duration recovery() const { return recovery_; }

  // -- for saboteurs ------------------------------------------------------------------------------

  [[nodiscard]] const round_plan& plan() const { return scene_.plan; }
  [[nodiscard]] wire::round_promise promise_of(std::size_t member) const;
  [[nodiscard]] bool is_running(std::size_t member) const;
  float_vector& values_of(std::size_t member) { return *members_[member].values; }
  [[nodiscard]] member_set blameless() const { return everybody() - excused_; }
  /// Blameless members that have no result, or whose vectors did not count.
  [[nodiscard]] std::size_t left_out() const;
  /// To be called before the run: this member lies, so nothing is promised to it.
  void let_lie(std::size_t who) { excuse(who); }
  /// `to` receives this from `from` soon; no saboteur changes it.
  void inject(std::size_t from, std::size_t to, wire::event what);

private:
  using duration = round_net::duration;
  class port;
  struct member {
    round_memory memory;
    std::unique_ptr<round_registry> rounds;
    std::shared_ptr<float_vector> values;
    float_vector values_before;
    std::shared_ptr<filling> fills;
    std::shared_ptr<round_engine> engine; // kept after a crash, for inspection
    std::weak_ptr<round_engine> engine_alive;
    bool takes_part = true;
    bool broken_off = false;
    std::optional<round_finished> end;
    steady_time began{};
    steady_time ended_at{};
  };

  [[nodiscard]] member_set everybody() const { return member_set::first(members_.size()); }
  void begin(std::size_t who);
  void fill(std::size_t who, std::size_t step);
  void tick(std::size_t who);
  void on_finished(std::size_t who, round_finished how);
  void send(std::size_t from, std::size_t to, wire::event what, payload body);

  std::shared_ptr<std::byte> destination(std::size_t to, std::size_t from, const wire::part& head,
                                         std::size_t bytes) override;
  void arrived(std::size_t to, std::size_t from, wire::event what, payload body,
               const std::shared_ptr<net::link>& via) override;
  void lost(std::size_t at, std::size_t whom) override;
  void violated(const std::string& what) override;

  void count(moment what) { ++counts_[static_cast<std::size_t>(what)]; }
  void strike_what_is_due();
  void strike(fault f);
  void excuse(std::size_t who) { excused_.insert(who); }
  void delay(member_set whom);
  [[nodiscard]] bool all_ended() const;
  void note(std::size_t to, std::size_t from, const wire::event& what);
  void note(std::size_t at, const std::string& what);

  void check_quorum(std::size_t finisher);
  void check_end(const member& m);
  void check_agreement();
  void check_values(const round_report& report);
  void check_blameless();
  void check_left_behind();
  void forget_all();
  [[nodiscard]] duration transfer_bound() const;
  [[nodiscard]] steady_time latest_end() const;

  round_scenario scene_;
  saboteur* planted_;
  round_net net_;
  std::vector<member> members_;
  std::vector<fault> pending_;
  std::vector<fault> struck_;
  steady_time last_strike_{};
  member_set excused_;
  member_set delayed_; // briefly; a second delay excuses the member
  std::array<std::uint64_t, moments> counts_{};
  std::vector<std::size_t> new_finishers_;
  std::size_t last_finisher_ = 0;
  round_net::duration recovery_{};
  std::string violation_;
  std::optional<std::string> journal_;
};

} // namespace waggle::testing
