#pragma once

// Internal to runtime/net: shared memory beside a link between two peers on one host.
//
//   acceptor                    dialler
//      │ ◄── Hello.host ──► │            TCP: equal tokens, both identities proved
//      │ ── offer ────────► │            TCP: name of an abstract socket, nonce
//      │ ◄──────── nonce ── │            that socket; the kernel tells both whose process it is
//      │ ◄── segments ────► │            that socket: descriptors of memory files, both ways
//      │ ◄── mapped ──────► │            that socket: how many of them can be referred to
//      │ ◄── reference ───► │            TCP, instead of a body
//      │ ◄── release ─────► │            TCP: the body's memory is no longer looked at
//
// Whatever goes wrong before `mapped`, or later on that socket, means that bodies go over TCP. The
// socket's end says that the other looks at nothing of ours any more, even if the link ended
// before.

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

namespace waggle::net {

namespace asio = boost::asio;

/// Equal for processes of one user in one network namespace of one running kernel, and for no
/// others. Empty: cannot tell.
std::string host_token();

/// Bodies that lie in the arena already, or are copied there once for however many peers. I/O
/// thread only.
class arena_lender {
public:
  explicit arena_lender(std::shared_ptr<shared_arena> arena) : arena_(std::move(arena)) {}

  struct loan {
    payload original;                      // unchanged while it is held
    std::shared_ptr<const std::byte> copy; // null: the original lies in the arena
    shared_arena::place place;
  };
  /// Nothing: the arena is full.
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

/// The path of one link, from the moment its socket is connected. I/O thread only.
class local_path : public std::enable_shared_from_this<local_path> {
public:
  struct events {
    std::function<void()> returned; // any thread: `take_returned` has something
    std::function<void(ec)> state;  // ec::none: can be used from now on; else: no longer, and why
  };
  local_path(asio::io_context& io, unique_fd socket, std::shared_ptr<arena_lender> lender,
             events told);

  /// Tells the peer our segments, listens for its own.
  void open();

  /// Where the peer finds `body` from now on, until it returns the id. Nothing: send the bytes.
  std::optional<memory_reference> lend(const payload& body);
  /// The peer returned these. Ids that are not lent are of no consequence.
  void on_release(std::string_view ids);

  result<payload> borrow(const memory_reference& reference) { return theirs_->borrow(reference); }
  std::vector<std::uint64_t> take_returned() { return theirs_->take_returned(); }

  /// The link has ended: lends no more. True if the peer may still look at something of ours, so
  /// that this must be kept until `idle`.
  bool end(std::function<void()> idle);

private:
  enum class word : std::uint32_t { segment = 1, mapped = 2 };
  struct note {
    word what = word::segment;
    std::uint32_t count = 0; // mapped: how many
    std::uint64_t bytes = 0; // segment: its size
  };

  void announce();
  bool tell(const note& what, int descriptor);
  void listen();
  /// False: there is nothing to read at the moment, or it is over.
  bool read_note();
  void broken(ec why);

  asio::posix::stream_descriptor socket_;
  std::shared_ptr<arena_lender> lender_;
  std::shared_ptr<peer_memory> theirs_;
  events told_;
  bool usable_ = true;
  bool said_usable_ = false;
  std::size_t announced_ = 0; // segments of ours
  std::size_t mapped_ = 0;    // of those: what the peer can see
  std::unordered_map<std::uint64_t, arena_lender::loan> lent_;
  std::size_t lent_bytes_ = 0;
  std::uint64_t next_id_ = 1;
  std::function<void()> idle_;
};

/// What the links of one transport have in common: the socket that peers on this host connect to,
/// the arena, and the paths that outlive their links. I/O thread only.
class local_host : public std::enable_shared_from_this<local_host> {
public:
  using connected = std::function<void(unique_fd)>;

  /// Null: this system has no such thing.
  static std::shared_ptr<local_host> make(asio::io_context& io,
                                          std::shared_ptr<shared_arena> arena);

  [[nodiscard]] const std::string& token() const { return token_; }

  struct offer {
    std::string nonce;
    std::string bytes; // what is sent
  };
  /// Lets the other end of a link connect: `then` gets the socket, once, if it does.
  offer expect(connected then);
  void forget(const std::string& nonce) { expected_.erase(nonce); }
  /// Connects to the sender of an offer. Fails with a reason.
  static result<unique_fd> connect(std::string_view offer);

  std::shared_ptr<local_path> make_path(unique_fd socket, local_path::events told);
  /// A path whose link has ended.
  void retire(const std::shared_ptr<local_path>& path);
  void stop();

private:
  struct visitor; // connected, has not said its nonce yet

  local_host(asio::io_context& io, std::shared_ptr<shared_arena> arena);
  bool bind();
  void accept_next();

  asio::io_context& io_;
  asio::posix::stream_descriptor acceptor_;
  std::shared_ptr<arena_lender> lender_;
  std::string token_;
  std::string name_;
  std::map<std::string, connected> expected_; // by nonce
  std::deque<std::shared_ptr<visitor>> visitors_;
  std::deque<std::shared_ptr<local_path>> retired_;
};

} // namespace waggle::net
