#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
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
  /// Bytes of control frames received but not processed yet; more close the link.
  std::size_t inbound_backlog_bytes = 16_MiB;
  /// A request's own deadline is limited to this.
  milliseconds inbound_deadline_max{60'000};
};

/// Fails with ec::bad_config and a sentence that says what to change.
status check_link_config(const link_config& config);

/// The services that receive the messages of peers.
struct service_table {
  std::array<service_actor, service_topics> by_topic; // null: no service (yet)
  /// Matchmakers by prefix. Messages with another prefix go to the one in `by_topic`, which refuses
  /// them.
  std::map<std::string, service_actor, std::less<>> matchmakers;

  /// `prefix`: of messages about matchmaking.
  [[nodiscard]] const service_actor& find(service_topic topic, std::string_view prefix) const;
};

/// Event to the link: a frame arrived that is not a message of a round.
struct frame_arrived {
  result<wire::message> message;
  payload body;
  std::size_t header_bytes = 0;
};
/// Event to the link: the connection ended.
struct connection_ended {
  failure why;
};
/// Command to the link: send messages to these services from now on.
struct use_services {
  service_table services;
};
/// Command to the link: cancels close_link with `when_idle`.
struct keep_link {};
/// To itself: check whether the peer is alive.
struct check_silence {};
/// To itself: this call has timed out.
struct call_expired {
  std::uint64_t id = 0;
};

/// Event to the switchboard: a link is down.
struct link_down {
  peer_id peer;
  std::uint64_t link = 0; // the switchboard's number for it
  failure why;
};
using link_owner_actor = caf::typed_actor<caf::reacts_to<link_down>>;

struct peer_link_state {
  static inline const char* name = "peer-link";

  using answer_promise = caf::typed_response_promise<peer_answer>;

  std::shared_ptr<net::link> link;
  service_table services;
  std::map<std::uint64_t, answer_promise> calls; // our open calls
  std::uint64_t last_call = 0;
  /// The peer's calls that a service processes, and whether the peer still wants the answer. A
  /// cancelled call counts until the service is done: otherwise cancelling would evade the limit.
  std::map<std::uint64_t, bool> inbound_calls;
  std::optional<failure> close_when_unused;
  steady_time last_use; // as of the last check
  /// When the last answered ping was sent: everything sent before it has arrived.
  steady_time arrived_before;
  std::optional<failure> ended;
  bool said_goodbye = false;
  std::optional<net::failure_detector> detector;
  std::uint64_t frames_checked = 0;
  std::uint64_t reads_checked = 0;
  steady_time check_due;        // when the next check is scheduled
  std::uint64_t ping_nonce = 0; // of the unanswered ping; 0: none
  steady_time pinged;
  /// Written by the I/O thread without a message.
  struct traffic {
    std::atomic<std::size_t> backlog{0}; // bytes of headers not processed yet
    std::atomic<std::uint64_t> frames{0};
    std::atomic<steady_time::rep> heard{0}; // the last frame
    std::atomic<steady_time::rep> used{0};  // the last frame other than ping and pong
  };
  std::shared_ptr<traffic> seen;
};

using peer_link_impl =
  peer_link_actor::extend<caf::reacts_to<frame_arrived>, caf::reacts_to<connection_ended>,
                          caf::reacts_to<use_services>, caf::reacts_to<keep_link>,
                          caf::reacts_to<check_silence>, caf::reacts_to<call_expired>>;

/// One connection: our calls and their deadlines, the peer's calls and their answers, liveness.
/// @param number identifies this link in link_down.
peer_link_impl::behavior_type peer_link(peer_link_impl::stateful_pointer<peer_link_state> self,
                                        node_context ctx, link_config config,
                                        std::shared_ptr<net::link> link, std::uint64_t number,
                                        link_owner_actor owner, service_table services);

/// The service that a request or event of a peer is for; nothing for events that the link handles.
service_topic topic_of(const wire::request& what);
std::optional<service_topic> topic_of(const wire::event& what);
/// The prefix that a message about matchmaking names; empty for others.
std::string_view prefix_of(const wire::request& what);
std::string_view prefix_of(const wire::event& what);

} // namespace waggle

WAGGLE_LOCAL(frame_arrived)
WAGGLE_LOCAL(connection_ended)
WAGGLE_LOCAL(use_services)
WAGGLE_LOCAL(keep_link)
WAGGLE_LOCAL(check_silence)
WAGGLE_LOCAL(call_expired)
WAGGLE_LOCAL(link_down)
