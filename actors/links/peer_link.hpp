#pragma once

#include <map>
#include <memory>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/links/link_reader.hpp"
#include "actors/links/service_table.hpp"
#include "actors/node_context.hpp"
#include "runtime/net/failure_detector.hpp"

namespace waggle {

struct link_config {
  /// A ping is sent after this long without a sign of life.
  milliseconds ping_interval{1'000};
  /// A peer that sent nothing for this long is lost (ec::timeout), however irregular its answers
  /// were; must be longer than the ping interval. A peer whose answers were regular is lost
  /// earlier, after 2.7 ping intervals (net::failure_detector). Bytes of an incomplete frame count
  /// as a sign of life.
  milliseconds silence_timeout{5'000};
  /// The failure detector's threshold: a living peer is given up once in 10^suspicion checks. Raise
  /// it if links to healthy peers end with `timeout`.
  double suspicion = 8;
  /// A connection that is no longer needed ends after this long without a call, an event, or a body
  /// in transfer. Both peers switched to the other connection long before; data that they had sent
  /// over this one until then may be the first parts of a round, and take minutes on a slow link.
  milliseconds unused_for{10'000};
  /// Requests of the peer that are processed at once; more are refused with ec::overloaded.
  std::size_t inbound_calls_max = 256;
  /// What the peer may make us process; beyond it, the link is read later.
  net::link_budget::limits budget;
  /// Records of the peer whose signatures do not verify; then the link is closed. An honest peer
  /// sends none; a few are allowed so that a build with an error is found in its log.
  std::size_t bad_signatures_max = 3;
  /// A request's own deadline is limited to this.
  milliseconds inbound_deadline_max{60'000};
};

/// Fails with ec::bad_config and a sentence that names what to change.
status check_link_config(const link_config& config);

/// To itself: check whether the peer is silent.
struct check_silence {};
/// To itself: this call has timed out.
struct call_expired {
  std::uint64_t id = 0;
};

using peer_link_base =
  wired_peer_link_actor::extend<caf::reacts_to<check_silence>, caf::reacts_to<call_expired>>::
    extend_with<frame_listener_actor>::base;

/// One connection: our calls and their deadlines, the peer's calls and their answers, signs of
/// life.
class peer_link final : public peer_link_base {
public:
  /// @param number identifies this link in link_down.
  peer_link(caf::actor_config& cfg, node_context ctx, link_config config,
            std::shared_ptr<net::link> link, std::uint64_t number, link_owner_actor owner,
            service_table services);

  const char* name() const override { return "peer-link"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  using answer_promise = caf::typed_response_promise<peer_answer>;
  struct own_call {
    answer_promise promise;
    bool for_chunk = false; // of a state
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }
  [[nodiscard]] bool is_stranger();
  [[nodiscard]] peer_record remote() const;
  void transmit(const wire::message& what, payload body = {});
  void send_frame(std::string header, payload body, bool background);

  // Our calls.
  caf::result<peer_answer> call(call_over_link& msg);
  void on_answer(wire::answer& answer, const payload& body);
  void fail_call(std::uint64_t id, const failure& why);
  std::optional<answer_promise> take_call(std::uint64_t id);
  void count_calls();
  void note_unread();
  bool may_ask_for_piece();
  void on_call_expired(std::uint64_t id);

  // What the peer sends.
  void on_frame(frame_arrived& content);
  void on_call(wire::call& call, std::shared_ptr<void> ticket);
  void on_event(wire::event& event, payload body, std::shared_ptr<void> ticket);
  [[nodiscard]] bool is_genuine(const record& entry) const;
  void refuse_signature();
  void on_pong(const wire::pong& pong);
  bool take_inbound(std::uint64_t id);
  void answer(std::uint64_t id, outbound_answer& what);
  void refuse(std::uint64_t id, failure why);
  void violate(std::string what);

  // Signs of life, and the end.
  void plan_check(steady_time when);
  void check();
  [[nodiscard]] bool keeps_reading(const net::link_facts& facts, steady_time time);
  [[nodiscard]] bool takes_bodies(const net::link_facts& facts, steady_time time);
  [[nodiscard]] bool is_unused();
  void close(const close_link& msg);
  void on_end(failure why);

  const node_context ctx_;
  const link_config config_;
  const std::shared_ptr<net::link> link_;
  const std::uint64_t number_;
  link_owner_actor owner_;
  service_table services_;

  std::map<std::uint64_t, own_call> calls_; // ours, open
  std::uint64_t last_call_ = 0;
  /// The peer's calls that a service works on, and whether the peer still wants the answer. A
  /// cancelled call counts until the service is done: otherwise a peer could exceed the limit by
  /// cancelling.
  std::map<std::uint64_t, bool> inbound_calls_;
  std::size_t pieces_wanted_ = 0; // by the peer, and not given to the link yet

  std::shared_ptr<link_traffic> traffic_ = std::make_shared<link_traffic>();
  const std::shared_ptr<net::link_budget> budget_;
  std::size_t bad_signatures_ = 0;
  net::failure_detector detector_;
  std::uint64_t frames_checked_ = 0;
  std::uint64_t reads_checked_ = 0;
  std::size_t unread_checked_ = 0;
  steady_time unread_since_;            // the peer has read nothing of what waits for it since then
  std::uint64_t background_queued_ = 0; // bytes, since the beginning
  std::uint64_t taken_checked_ = 0;
  steady_time untaken_since_;    // the peer has taken nothing of the bodies that wait since then
  steady_time check_due_;        // when the next check is planned
  std::uint64_t ping_nonce_ = 0; // of the ping under way; 0: none
  steady_time pinged_;
  /// When the last ping that was answered was sent: everything sent before it has arrived.
  steady_time arrived_before_;
  std::optional<failure> close_when_unused_;
  steady_time last_use_; // as of the last `check`
  bool departure_announced_ = false;
  std::optional<failure> ended_;
};

} // namespace waggle
