#pragma once

// Internal to runtime/net: shared memory beside a link between two peers on one host.
//
//   acceptor                    dialler
//      │ ◄── Hello.host ──► │            TCP: equal tokens, both identities proved
//      │ ── offer ────────► │            TCP: name of an abstract socket, nonce
//      │ ◄─────── answer ── │            that socket: a hash over the nonce and both ends of the
//      │                    │            link; the kernel reports the other process's user
//      │ ◄── segments ────► │            that socket: descriptors of memory files, both ways
//      │ ◄── mapped ──────► │            that socket: how many of them can be referred to; first 0,
//      │                    │            then again once the other end has said so
//      │ ◄── reference ───► │            TCP, instead of a body
//      │ ◄── release ─────► │            TCP: the body's memory is no longer read
//
// After any error before `mapped`, or later on that socket, bodies go over TCP. When the peer
// closes that socket, it no longer reads our memory, even if the link ended earlier.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/net/net_events.hpp"
#include "runtime/net/peer_memory.hpp"
#include "runtime/net/shared_arena.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

namespace asio = boost::asio;

/// Equal for processes of one user in one network namespace of one running kernel, and different
/// for all others. Empty: could not be determined.
std::string host_token();

/// The process at the other end of a connected local socket runs as our user, in our namespace of
/// processes: each of the two could read the other's files. False for containers apart, even if
/// they share their network.
bool is_same_user(int socket);

struct link_ends {
  peer_id dialler;
  peer_id acceptor;
};

/// Lends bodies from the arena. A body that is not in the arena is copied there once, for any
/// number of peers. I/O thread only.
class arena_lender {
public:
  explicit arena_lender(std::shared_ptr<shared_arena> arena) : arena_(std::move(arena)) {}

  struct loan {
    payload original;                      // unchanged while it is held
    std::shared_ptr<const std::byte> copy; // null: the original lies in the arena
    shared_arena::place place;
  };
  /// Returns nothing if the arena is full.
  std::optional<loan> lend(const payload& body);
  [[nodiscard]] const shared_arena& arena() const { return *arena_; }

private:
  struct copied {
    std::weak_ptr<const std::byte> original;
    std::size_t bytes = 0;
    std::weak_ptr<const std::byte> copy;
  };

  std::shared_ptr<shared_arena> arena_;
  std::unordered_map<const std::byte*, copied> copies_; // by address of the original
};

/// The shared-memory path of one link, once its socket is connected. I/O thread only.
class local_path : public std::enable_shared_from_this<local_path> {
public:
  struct events {
    std::function<void()> returned;           // any thread: `take_returned` has ids
    std::shared_ptr<neighbourhood> neighbour; // set once the peer has opened its end
    hook<void(ec)> state; // ec::none: usable from now on; else: why it no longer is
  };
  local_path(asio::io_context& io, unique_fd socket, std::shared_ptr<arena_lender> lender,
             events told);

  /// Sends our segments to the peer and begins to receive its segments.
  void open();

  /// Where the peer can read `body` until it returns the id. Nothing: send the bytes over TCP.
  std::optional<memory_reference> lend(const payload& body);
  /// The peer returned these ids. Ids that are not lent are ignored.
  void on_release(std::string_view ids);

  result<payload> borrow(const memory_reference& reference) { return theirs_->borrow(reference); }
  std::vector<std::uint64_t> take_returned() { return theirs_->take_returned(); }

  /// The link has ended: lends no more.
  void end();
  /// The peer may still read our memory: this object must be kept.
  [[nodiscard]] bool is_lent() const { return socket_.is_open() && !lent_.empty(); }

private:
  enum class word : std::uint32_t { segment = 1, mapped = 2 };
  struct note {
    word what = word::segment;
    std::uint32_t count = 0; // mapped: how many
    std::uint64_t bytes = 0; // segment: its size; mapped: 1 if the other end is a neighbour
  };

  void announce();
  bool tell(const note& what, int descriptor);
  void listen();
  /// False: nothing to read at the moment, or the socket is closed.
  bool read_note();
  void broken(ec why);

  asio::posix::stream_descriptor socket_;
  std::shared_ptr<arena_lender> lender_;
  std::shared_ptr<peer_memory> theirs_; // null: the link has ended
  const bool same_user_;
  events told_;
  bool usable_ = true;
  bool answered_ = false;
  bool announced_usable_ = false;
  std::size_t announced_ = 0; // how many of our segments were sent to the peer
  std::size_t mapped_ = 0;    // how many of those the peer has mapped
  std::unordered_map<std::uint64_t, arena_lender::loan> lent_;
  std::size_t lent_bytes_ = 0;
  std::uint64_t next_id_ = 1;
};

/// Shared by all links of one transport: the socket that peers on this host connect to, the arena,
/// and the paths that outlive their links. I/O thread only.
class local_host : public std::enable_shared_from_this<local_host> {
public:
  using connected = std::function<void(unique_fd)>;

  /// Null: not supported by this system.
  static std::shared_ptr<local_host> make(asio::io_context& io,
                                          std::shared_ptr<shared_arena> arena);

  [[nodiscard]] const std::string& token() const { return token_; }

  struct offer {
    std::string answer; // what the dialler shows
    std::string bytes;  // what is sent
  };
  /// Allows the other end of a link to connect. If it does, `then` gets the socket, once.
  offer expect(const link_ends& of, connected then);
  void forget(const std::string& answer) { expected_.erase(answer); }
  /// Connects to the sender of an offer. Fails with a reason.
  static result<unique_fd> connect(std::string_view offer, const link_ends& of);

  std::shared_ptr<local_path> make_path(unique_fd socket, local_path::events told);
  void retire(const std::shared_ptr<local_path>& path);
  void stop();

private:
  using visitor = asio::posix::stream_descriptor; // connected, has not sent its answer yet

  local_host(asio::io_context& io, std::shared_ptr<shared_arena> arena);
  bool bind();
  void accept_next();

  asio::io_context& io_;
  asio::posix::stream_descriptor acceptor_;
  std::shared_ptr<arena_lender> lender_;
  std::string token_;
  std::string name_;
  std::map<std::string, connected> expected_; // by answer
  std::deque<std::shared_ptr<visitor>> visitors_;
  std::deque<std::shared_ptr<local_path>> retired_;
};

} // namespace waggle::net
