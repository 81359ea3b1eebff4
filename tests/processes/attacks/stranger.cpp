#include "tests/processes/attacks/stranger.hpp"

#include <map>
#include <mutex>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "runtime/core/time.hpp"
#include "runtime/crypto/run_secret.hpp"
#include "runtime/net/handshake.hpp"
#include "runtime/wire/convert.hpp"

namespace waggle::attacks {

namespace {

constexpr milliseconds patience{5'000};

/// Deriving the key of a run's name takes long by design, so strangers of one run share it.
std::shared_ptr<const run_secret> secret_of(const std::string& run) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const run_secret>> known;
  std::lock_guard guard{mutex};
  auto& secret = known[run];
  if (!secret)
    secret = std::make_shared<const run_secret>(run);
  return secret;
}

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

} // namespace

// -- raw_socket ----------------------------------------------------------------------------------

raw_socket::raw_socket(const endpoint& where, milliseconds patience, const std::string& source)
  : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  timeval limit{patience.count() / 1000, patience.count() % 1000 * 1000};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (!source.empty()) {
    auto from = address_of(source, 0);
    ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&from), sizeof from);
  }
  auto to = address_of(where.host, where.port);
  if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    socket_ = unique_fd{};
}

bool raw_socket::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0)
      return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool raw_socket::receive(char* to, std::size_t bytes) const {
  while (bytes > 0) {
    auto got = ::recv(socket_.get(), to, bytes, 0);
    if (got <= 0)
      return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool raw_socket::drain() const {
  char buffer[65'536];
  for (;;) {
    auto got = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0)
      return false;
    if (got < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

std::string raw_socket::receive_all() const {
  std::string all;
  char buffer[4'096];
  for (ssize_t n = 0; (n = ::recv(socket_.get(), buffer, sizeof buffer, 0)) > 0;)
    all.append(buffer, static_cast<std::size_t>(n));
  return all;
}

// -- stranger ------------------------------------------------------------------------------------

stranger::stranger(endpoint where, std::string run, std::uint64_t seed, std::string source)
  : where_(std::move(where)), run_(std::move(run)), source_(std::move(source)),
    self_(identity::from_seed(seed)) {}

bool stranger::join(const std::vector<endpoint>& announced) {
  open_ = false;
  socket_.emplace(where_, patience, source_);
  if (!socket_->connected()
      || !socket_->send("GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                        "Upgrade: waggle/1\r\n\r\n"))
    return fail("no connection");
  std::string response;
  for (char c = 0; !response.ends_with("\r\n\r\n"); response.push_back(c))
    if (!socket_->receive(&c, 1))
      return fail("no answer to the upgrade");
  if (!response.starts_with("HTTP/1.1 101"))
    return fail(response.substr(0, response.find('\r')));
  net::handshake::setup with;
  with.dialled = true;
  with.run = secret_of(run_);
  with.self = self_;
  with.record = {self_->id(), self_->key(), announced, announced.empty()};
  with.verifier = make_plain_verifier();
  random_source{entropy_seed()}.fill(with.nonce.bytes);
  with.claims.instance = entropy_seed();
  with.clock = std::make_shared<system_wall_clock>();
  with.began = with.clock->now();
  net::handshake proof{std::move(with)};
  auto say = [&](const std::string& text) {
    return send_prefix({net::frame_kind::handshake, static_cast<std::uint32_t>(text.size()), 0},
                       text);
  };
  open_ = say(proof.hello());
  while (open_) {
    auto next = read_frame();
    if (!next || next->kind != net::frame_kind::handshake)
      return fail("no answer in the handshake");
    auto step = proof.on_message(next->header);
    for (const auto& text : step.send)
      open_ = open_ && say(text);
    if (step.why.code != ec::none)
      return fail(to_string(step.why));
    if (step.peer)
      break;
  }
  return open_ || fail("the link is closed");
}

bool stranger::fail(std::string why) {
  why_ = std::move(why);
  return open_ = false;
}

bool stranger::send_prefix(const net::frame_prefix& prefix, std::string_view then) {
  auto bytes = net::write_prefix(prefix);
  std::string all{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  all.append(then);
  bytes_sent_ += all.size();
  return socket_->send(all);
}

bool stranger::send(const wire::message& what, std::size_t body_bytes) {
  if (!joined())
    return false;
  auto header = wire::encode(what);
  auto bytes = static_cast<std::uint32_t>(header.size());
  header.append(body_bytes, '\x3f');
  open_ =
    send_prefix({net::frame_kind::message, bytes, static_cast<std::uint32_t>(body_bytes)}, header);
  return open_;
}

std::optional<stranger::arrived> stranger::read_frame() {
  std::array<std::byte, net::frame_prefix::size> bytes{};
  if (!socket_->receive(reinterpret_cast<char*>(bytes.data()), bytes.size()))
    return std::nullopt;
  auto prefix = net::read_prefix(bytes);
  if (!prefix)
    return std::nullopt;
  arrived out{prefix->kind, std::string(prefix->header_bytes, '\0')};
  if (!socket_->receive(out.header.data(), out.header.size()))
    return std::nullopt;
  if (prefix->body_bytes > 0 && prefix->kind != net::frame_kind::opening) {
    std::string body(prefix->body_bytes, '\0');
    if (!socket_->receive(body.data(), body.size()))
      return std::nullopt;
  }
  return out;
}

std::optional<std::chrono::microseconds> stranger::ping() {
  auto began = std::chrono::steady_clock::now();
  if (!ask(wire::dht_ping{}))
    return std::nullopt;
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now()
                                                               - began);
}

std::optional<wire::response> stranger::ask(wire::request what) {
  using clock = std::chrono::steady_clock;
  auto id = ++calls_;
  auto began = clock::now();
  if (!send(wire::call{id, static_cast<std::uint32_t>(patience.count()), std::move(what)})) {
    fail("the link is closed");
    return std::nullopt;
  }
  while (clock::now() - began < patience) {
    auto next = read_frame();
    if (!next) {
      fail("no answer, or the link is closed");
      return std::nullopt;
    }
    auto message = next->kind == net::frame_kind::message ? wire::decode(next->header, 0)
                                                          : result<wire::message>{failure{}};
    if (!message)
      continue;
    if (const auto* asked = std::get_if<wire::ping>(&*message)) {
      send(wire::pong{asked->nonce});
    } else if (const auto* no = std::get_if<wire::refusal>(&*message); no && no->id == id) {
      why_ = to_string(no->why);
      return std::nullopt;
    } else if (auto* answer = std::get_if<wire::answer>(&*message); answer && answer->id == id) {
      return std::move(answer->what);
    }
  }
  why_ = "other messages, and no answer";
  return std::nullopt;
}

} // namespace waggle::attacks
