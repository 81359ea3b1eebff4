// Clients that have to stay outside: without the key, on no list of members or with a false one, or
// with first bytes that are no link's.

#include <thread>

#include <openssl/ssl.h>

#include "runtime/core/byte_io.hpp"
#include "runtime/net/handshake.hpp"
#include "tests/processes/attacks/attacks.hpp"

namespace waggle::attacks {

namespace {

constexpr swarm_time forever = swarm_time::max();

using story = std::function<list_story(const list_story& theirs, const stranger&, const target&)>;

/// A peer that does the whole handshake, and says this of the list.
knock::shown shake_hands(stranger& who, const target& at, const story& tells) {
  if (tells)
    who.tell([&](const list_story& theirs) { return tells(theirs, who, at); });
  return {who.join() ? ec::none : who.refusal(), who.heard()};
}

knock peer_that(std::string name, ec refusal, const story& tells,
                std::function<std::string(const target&)> run = {}) {
  return {
    std::move(name), refusal, [tells, run = std::move(run)](const target& at) {
      stranger who{at.where, run ? run(at) : at.run, at.seed != 0 ? at.seed : entropy_seed() | 1U};
      return shake_hands(who, at, tells);
    }};
}

/// One that has the authority right, and claims to have the next list, which is this one.
knock bearer_of(std::string name, ec refusal,
                const std::function<std::string(const list_story& next, const stranger&)>& list,
                std::optional<std::uint32_t> frame_bytes = {}) {
  return peer_that(std::move(name), refusal,
                   [=](const list_story& theirs, const stranger& who, const target&) {
                     list_story next{theirs.authority, {theirs.rank.version + 1, {}}};
                     next.list = list(next, who);
                     next.frame_bytes = frame_bytes;
                     return next;
                   });
}

/// Whatever begins with TLS of this kind, and then does this.
knock client_of(std::string name, ec refusal, const std::string& protocol, int version_max,
                const std::function<void(const raw_socket&)>& then = {}) {
  return {std::move(name), refusal, [=](const target& at) {
            raw_socket socket{at.where};
            if (socket.connected() && socket.encrypt(protocol, version_max) && then)
              then(socket);
            return knock::shown{ec::none, socket.receive_all()};
          }};
}

std::string begun_frame(std::uint32_t bytes) {
  auto prefix = net::write_prefix({net::frame_kind::handshake, bytes, 0});
  return std::string{as_string_view(prefix)};
}

std::string a_hello() {
  return begun_frame(4) + "what";
}

list_story honest(const list_story& theirs, const stranger&, const target&) {
  return {theirs.authority, theirs.rank};
}

} // namespace

std::string made_list(const public_key& authority, std::uint64_t version, swarm_time end,
                      const std::vector<member_list::member>& members, const identity& by) {
  byte_writer out;
  out.put_raw("waggle-members/1").put(authority).put(version).put(to_nanoseconds(end));
  out.put(static_cast<std::uint32_t>(members.size()));
  for (const auto& each : members)
    out.put(each.id).put(to_nanoseconds(each.until));
  out.put(by.sign(out.text()));
  return out.take();
}

const std::vector<knock>& knocks() {
  using list_of = const list_story&;
  using by = const stranger&;
  auto self = [](by who) { return member_list::member{who.self().id(), forever}; };
  static const std::vector<knock> table{
    peer_that("no-key", ec::wrong_run, honest, [](const target&) { return "a guessed name"; }),
    peer_that("wrong-key", ec::wrong_run, honest,
              [](const target&) { return inline_text(make_swarm_key()); }),
    peer_that("no-list", ec::wrong_run, {}),
    peer_that("another-authority", ec::wrong_run,
              [](list_of, by who, const target&) {
                return list_story{who.self().key(), {}};
              }),
    peer_that("not-listed", ec::not_a_member, honest),
    // Claims that it is newer.
    peer_that("old-list", ec::not_a_member,
              [](list_of theirs, by, const target& at) {
                return list_story{theirs.authority, {theirs.rank.version + 1, {}}, at.list};
              }),
    bearer_of("list-of-another-authority", ec::bad_signature,
              [self](list_of next, by who) {
                return made_list(who.self().key(), next.rank.version, forever, {self(who)},
                                 who.self());
              }),
    bearer_of("forged-list", ec::bad_signature,
              [self](list_of next, by who) {
                return made_list(next.authority, next.rank.version, forever, {self(who)},
                                 who.self());
              }),
    bearer_of("list-without-end", ec::malformed,
              [self](list_of next, by who) {
                return made_list(next.authority, next.rank.version, {}, {self(who)}, who.self());
              }),
    bearer_of("list-out-of-order", ec::malformed,
              [self](list_of next, by who) {
                return made_list(next.authority, next.rank.version, forever,
                                 {self(who), {{}, forever}}, who.self());
              }),
    bearer_of("long-list", ec::oversize,
              [self](list_of next, by who) {
                return made_list(next.authority, next.rank.version, forever,
                                 {member_list::members_max + 1, self(who)}, who.self());
              }),
    bearer_of(
      "long-frame", ec::protocol_violation, [](list_of, by) { return "x"; },
      net::list_message_bytes_max + 1),
    bearer_of(
      "endless-list", ec::timeout, [](list_of, by) { return "x"; }, net::list_message_bytes_max),
    {"another-channel", ec::wrong_run,
     [](const target& at) {
       stranger who{at.where, at.run, entropy_seed() | 1U};
       who.encrypt("as a relay would see it");
       return shake_hands(who, at, honest);
     }},
    client_of("old-tls", ec::wrong_version, "waggle/1", TLS1_2_VERSION),
    client_of("no-protocol", ec::malformed, "", 0, [](auto& socket) { socket.send(a_hello()); }),
    client_of("another-protocol", ec::protocol_violation, "waggle/0", 0),
    client_of(
      "second-handshake", ec::protocol_violation, "waggle/1", 0,
      [](auto& socket) { socket.send_raw(std::string("\x16\x03\x01\x00\x04", 5) + "what"); }),
    client_of("keys-without-end", ec::protocol_violation, "waggle/1", 0,
              [](auto& socket) {
                for (int i = 0; i < 100 && socket.change_keys(); ++i) {
                }
              }),
    client_of("records-without-end", ec::timeout, "waggle/1", 0,
              [](auto& socket) {
                socket.send(begun_frame(net::handshake_bytes_max));
                for (int i = 0; i < 100; ++i)
                  socket.send("x");
              }),
    {"no-tls", ec::malformed,
     [](const target& at) {
       raw_socket socket{at.where};
       socket.send("\x16" + a_hello());
       return knock::shown{ec::none, socket.receive_all()};
     }},
  };
  return table;
}

} // namespace waggle::attacks
