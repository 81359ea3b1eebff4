#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/averaging/averaging_step.hpp"
#include "actors/node_context.hpp"
#include "runtime/allreduce/averaging_config.hpp"

namespace waggle {

/// To itself: look whether the round of the step with this number is due.
struct step_due {
  std::uint64_t step = 0;
};

using vector_averager_base =
  averager_actor::extend_with<group_listener_actor>::extend<caf::reacts_to<step_due>>::base;

/// Averages one vector at a time: finds a group (or keeps the last one), averages in it, and tries
/// again while there is time. Its group_averager finds the group and runs the rounds.
///
/// Each group that is found begins an open group. With `reuse_group` the next step stays in it, if
/// it has as many members as are expected. If no number is expected, peers that search later are
/// referred to the group, and enter it, as long as it has places; the last member of a full group
/// leaves it for them. A step that needs another group leaves it, too; the other members go on
/// without this peer.
///
/// The round of a step may have to wait, for a time or for its caller, once the group is found; the
/// group then waits for this peer as for one that is slow (round_config::stall_timeout).
class vector_averager final : public vector_averager_base {
public:
  /// @param group used by this averager alone.
  vector_averager(caf::actor_config& cfg, node_context ctx, averaging_config config,
                  matchmaker_actor matchmaker, kept_group_actor group);

  const char* name() const override { return "averager"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct step {
    caf::typed_response_promise<round_report> promise;
    average_vector what;
    std::uint64_t elements = 0;
    codec_plan codecs;
    bool known_finite = false; // all values of `what` were checked, or there are none
    group_attempts attempts;
    int not_admitted = 0;           // so many open groups that were found did not admit us
    std::optional<round_plan> plan; // of the group that this attempt has found
    bool kept_group = false;        // the group was not found by this attempt
    bool has_group = false;         // and its round has not begun
    bool called = false;            // the group's leader has begun it
    bool cancelled = false;

    /// Whether our vector is finite; checks it on the first call.
    [[nodiscard]] bool is_finite();
    void enter(step_stage stage) const {
      if (what.progress)
        what.progress->store(stage);
    }
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }
  caf::result<round_report> begin(average_vector& msg);
  void attempt();
  void search();
  void on_found(const group_formed& formed);
  void enter(const peer_record& leader);
  void run_when_due();
  [[nodiscard]] bool leads() const { return kept_.members.front() == ctx_.record.id; }
  [[nodiscard]] milliseconds time_to_begin() const;
  void trigger(const trigger_step& msg);
  void cancel(const cancel_step& msg);
  void leave_and_fail(failure why);
  void run();
  void on_round(group_round ended);
  void deliver(round_report report);
  void deliver_failure(failure why);

  // The open group.
  [[nodiscard]] static bool admits(const average_vector& what);
  [[nodiscard]] bool keeps_group(const average_vector& what, const codec_plan& codecs) const;
  void make_room_or_stay();
  void stay();
  void set_group(group_view now, bool may_keep);

  const node_context ctx_;
  const averaging_config config_;
  matchmaker_actor matchmaker_;
  kept_group_actor group_;

  std::optional<step> current_;
  std::uint64_t steps_ = 0; // number of `current_`
  group_view kept_;         // the open group
  codec_plan kept_codecs_;
  bool may_keep_ = false; // its members are those that the next step wants
  std::pair<std::optional<peer_id>, std::size_t> open_; // see set_open_group
  std::vector<peer_id> avoided_;                        // see group_round
};

} // namespace waggle
