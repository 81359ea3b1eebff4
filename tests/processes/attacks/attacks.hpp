#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"
#include "tests/processes/attacks/stranger.hpp"

namespace waggle::attacks {

/// Whom to attack, and how much.
struct target {
  endpoint where;
  std::string run; // its name, or the text of its key
  std::chrono::seconds duration{10};
  std::size_t links = 4; // identities, or sockets, at once
  double bytes_per_second = 10e6;
  std::uint64_t seed = 0; // of the identity that knocks; 0: one that is made up
  std::string list{};     // of members, for those that replay one
};

/// What came of it.
struct outcome {
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages = 0;
  std::uint64_t refused = 0; // links, sockets or requests that the peer refused or closed
};

/// Floods: they join `links` times, again whenever a link is closed, and send until the time is
/// over.
outcome flood_unknown_rounds(const target& at);  // parts with bodies, for rounds that nobody began
outcome flood_round_messages(const target& at);  // small messages, each for another round
outcome flood_open_records(const target& at);    // unsigned records of 60 kB
outcome flood_made_up_records(const target& at); // signed records of ever new identities
outcome flood_small_records(const target& at);   // as many as possible, without content
outcome flood_forged_records(const target& at);  // stores of records whose signatures do not verify
outcome flood_forged_progress(const target& at); // the same, as pushed reports
outcome flood_signed_progress(const target& at); // pushed reports whose signatures verify
outcome flood_notes(const target& at);           // short unsigned reports
outcome flood_finds(const target& at);           // requests with large answers
outcome flood_unread_answers(const target& at);  // the same, and nobody reads the answers
outcome flood_unread_pieces(const target& at);   // the same with pieces of a state
outcome flood_handshakes(const target& at);      // joins again and again
outcome flood_pages(const target& at);           // GET /metrics again and again
outcome unfinished_bodies(const target& at);  // all but the end of the largest body, on each link
outcome unfinished_headers(const target& at); // all but the end of a long message, on each link
outcome hold_links(const target& at);         // `links` identities that stay connected
outcome hold_sockets(const target& at);       // `links` sockets without a request
outcome hold_upgrades(const target& at);      // `links` upgraded sockets without a handshake
outcome announce_addresses(const target& at); // names, loopback, link-local, metadata services

/// Lies: the same number of identities claims something false of the run ten times a second.
outcome claim_far_epochs(const target& at);
outcome claim_another_history(const target& at); // forked from the run's, with more work
outcome claim_samples(const target& at);         // more than any peer computes
outcome claim_other_parameters(const target& at);

/// A client that the door of a run keeps out: of one with a key and a list of members, if its text
/// does not say something else. It knocks once.
struct knock {
  std::string name;
  ec refusal; // that the peer counts
  /// What it was shown; the reason, if the peer could tell it.
  struct shown {
    ec refusal = ec::none;
    std::string bytes{};
  };
  std::function<shown(const target&)> play;
};
const std::vector<knock>& knocks();

/// A list of members with these fields, signed by `by`, whether that makes sense or not.
std::string made_list(const public_key& authority, std::uint64_t version, swarm_time end,
                      const std::vector<member_list::member>& members, const identity& by);

struct attack {
  std::string name;
  std::function<outcome(const target&)> play;
};
/// All of them, by name; knocks go on until the time is over.
const std::vector<attack>& all();

/// How long an honest peer's pings take: one every 50 ms until the time is over. Milliseconds.
struct latency {
  double median = 0;
  double worst = 0;
  std::uint64_t lost = 0; // no answer within 5 s, refused, or no link
  std::string why;        // of the last one that was lost
};
/// @param honest has joined; joins again if its link is closed.
latency measure_pings(const target& at, stranger honest);

/// Newcomers from another host that were refused: one joins every 100 ms until the time is over.
/// The reason of the last refusal; empty: all were let in.
std::string refused_newcomer(const target& at, const std::string& source);

} // namespace waggle::attacks
