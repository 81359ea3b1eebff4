#include "tests/processes/attacks/stranger.hpp"

#include <csignal>
#include <map>
#include <mutex>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "runtime/core/time.hpp"
#include "runtime/core/version.hpp"
#include "runtime/crypto/run_secret.hpp"
#include "runtime/wire/convert.hpp"
#include "waggle_handshake.pb.h"

namespace waggle::attacks {

namespace {

constexpr milliseconds patience{5'000};

/// What a run's name, or the text of its key, stands for.
struct known_run {
  std::string name; // as in records
  run_secret secret;
};

/// Deriving the key of a run's name takes long by design, so strangers of one run share it.
const known_run& known(const std::string& run) {
  static std::mutex mutex;
  static std::map<std::string, known_run> all;
  std::lock_guard guard{mutex};
  if (auto found = all.find(run); found != all.end())
    return found->second;
  auto key = parse_inline_key(run);
  return all
    .try_emplace(run, key ? known_run{run_id_of(*key), run_secret{*key}}
                          : known_run{run, run_secret{run}})
    .first->second;
}

void append_text(std::string& out, std::string_view text) {
  for (int i = 0; i < 4; ++i)
    out.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xffU));
  out.append(text);
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
    auto sent = tls_ ? SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()))
                     : ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0)
      return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

ssize_t raw_socket::read_some(char* to, std::size_t bytes) const {
  auto got =
    tls_ ? SSL_read(tls_.get(), to, static_cast<int>(bytes)) : ::recv(socket_.get(), to, bytes, 0);
  if (got > 0)
    heard_.append(to, static_cast<std::size_t>(got));
  return got;
}

bool raw_socket::encrypt(const std::string& protocol, int version_max) {
  std::signal(SIGPIPE, SIG_IGN); // OpenSSL writes as to a pipe
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> with{SSL_CTX_new(TLS_client_method()),
                                                         SSL_CTX_free};
  SSL_CTX_set_max_proto_version(with.get(), version_max);
  auto offer = static_cast<char>(protocol.size()) + protocol;
  if (!protocol.empty())
    SSL_CTX_set_alpn_protos(with.get(), reinterpret_cast<const unsigned char*>(offer.data()),
                            static_cast<unsigned>(offer.size()));
  tls_ = {SSL_new(with.get()), SSL_free};
  SSL_set_fd(tls_.get(), socket_.get());
  return SSL_connect(tls_.get()) == 1;
}

bool raw_socket::send_raw(std::string_view bytes) const {
  auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size());
}

bool raw_socket::change_keys() const {
  return SSL_key_update(tls_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1
         && SSL_do_handshake(tls_.get()) == 1;
}

std::string raw_socket::channel() const {
  constexpr std::string_view label = "EXPORTER-Channel-Binding"; // RFC 9266
  std::string out(tls_ ? 32 : 0, '\0');
  if (tls_)
    SSL_export_keying_material(tls_.get(), reinterpret_cast<unsigned char*>(out.data()), out.size(),
                               label.data(), label.size(), nullptr, 0, 0);
  return out;
}

bool raw_socket::receive(char* to, std::size_t bytes) const {
  while (bytes > 0) {
    auto got = read_some(to, bytes);
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
  for (ssize_t n = 0; (n = read_some(buffer, sizeof buffer)) > 0;)
    all.append(buffer, static_cast<std::size_t>(n));
  return all;
}

// -- stranger ------------------------------------------------------------------------------------

stranger::stranger(endpoint where, std::string run, std::uint64_t seed, std::string source)
  : where_(std::move(where)), given_(std::move(run)), run_(known(given_).name),
    source_(std::move(source)), self_(identity::from_seed(seed)),
    encrypts_(!where_.host.starts_with("127.")) {}

bool stranger::upgrade() {
  if (!socket_->send("GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                     "Upgrade: waggle/1\r\n\r\n"))
    return fail("no connection");
  std::string response;
  for (char c = 0; !response.ends_with("\r\n\r\n"); response.push_back(c))
    if (!socket_->receive(&c, 1))
      return fail("no answer to the upgrade");
  return response.starts_with("HTTP/1.1 101") || fail(response.substr(0, response.find('\r')));
}

bool stranger::hear(proto::HandshakeMessage& message) {
  auto next = read_frame();
  if (!next || next->kind != net::frame_kind::handshake || !message.ParseFromString(next->header))
    return fail("no answer in the handshake");
  const auto* no = message.has_denial() ? &message.denial() : nullptr;
  if (message.has_proof() && message.proof().has_refusal())
    no = &message.proof().refusal();
  if (no == nullptr)
    return true;
  refusal_ = ec_from_wire(no->code());
  return fail(to_string(failure{refusal_, no->detail()}));
}

bool stranger::say(const proto::HandshakeMessage& message) {
  auto text = message.SerializeAsString();
  return send_prefix({net::frame_kind::handshake, static_cast<std::uint32_t>(text.size()), 0},
                     text);
}

/// The dialler's part in the conversation of runtime/net/handshake.hpp. Checks nothing.
bool stranger::join(const std::vector<endpoint>& announced) {
  open_ = false;
  refusal_ = ec::none;
  socket_.emplace(where_, patience, source_);
  proto::HandshakeMessage heard;
  if (!socket_->connected() || !(encrypts_ ? socket_->encrypt("waggle/1") : upgrade()))
    return fail("no connection");
  if (!hear(heard))
    return false;
  if (!heard.has_hello())
    return fail("no hello");
  const auto& theirs = heard.hello();
  list_story story;
  if (answer_)
    story =
      answer_({public_key::from_raw(theirs.authority()).value_or(public_key{}),
               {theirs.list_version(), digest::from_raw(theirs.list_hash()).value_or(digest{})}});
  const auto& secret = known(given_).secret;
  digest nonce;
  random_source{entropy_seed()}.fill(nonce.bytes);
  auto instance = entropy_seed();
  auto time = to_nanoseconds(system_wall_clock{}.now());
  proto::HandshakeMessage hello;
  auto& own = *hello.mutable_hello();
  own.set_version(protocol_version);
  own.set_key(std::string{self_->key().raw()});
  own.set_nonce(std::string{nonce.raw()});
  own.set_client_mode(announced.empty());
  own.set_instance(instance);
  own.set_time(static_cast<std::uint64_t>(time));
  own.set_has_key(secret.has_key());
  if (!story.authority.is_zero()) {
    own.set_authority(std::string{story.authority.raw()});
    own.set_list_version(story.rank.version);
    own.set_list_hash(std::string{story.rank.hash.raw()});
  }
  for (const auto& where : announced) {
    auto& to = *own.add_addresses();
    to.set_host(where.host);
    to.set_port(where.port);
  }
  std::string transcript;
  for (std::string_view text :
       {std::string_view{"dialler"}, self_->key().raw(), std::string_view{theirs.key()},
        nonce.raw(), std::string_view{theirs.nonce()}})
    append_text(transcript, text);
  append_text(transcript, channel_.value_or(socket_->channel()));
  auto signed_text = "waggle/handshake/4" + transcript;
  for (const auto& text : {std::to_string(instance), std::to_string(time), std::string{},
                           std::to_string(story.rank.version), std::string{story.rank.hash.raw()}})
    append_text(signed_text, text);
  proto::HandshakeMessage proof;
  proof.mutable_proof()->set_knowledge(std::string{secret.proof(transcript).raw()});
  proof.mutable_proof()->set_signature(std::string{self_->sign(signed_text).raw()});
  open_ = say(hello) && say(proof);
  if (!story.list.empty()) {
    proto::HandshakeMessage members;
    members.mutable_members()->set_list(secret.masked(transcript + "members", story.list));
    auto text = members.SerializeAsString();
    auto bytes = story.frame_bytes.value_or(static_cast<std::uint32_t>(text.size()));
    open_ = open_ && send_prefix({net::frame_kind::handshake, bytes, 0}, text);
  }
  return hear(heard) && (heard.has_proof() || fail("no proof"));
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
