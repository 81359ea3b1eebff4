// This file is long: it is the life of the connections of one peer, whose dials, handshakes and
// ends share its thread.

#include "runtime/net/tcp_transport.hpp"

#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/core/check.hpp"
#include "runtime/net/host_budgets.hpp"
#include "runtime/net/host_key.hpp"
#include "runtime/net/http_connection.hpp"
#include "runtime/net/http_front.hpp"
#include "runtime/net/narrow_paths.hpp"
#include "runtime/net/path_probe.hpp"
#include "runtime/net/refusals.hpp"
#include "runtime/net/socket_tuning.hpp"
#include "runtime/net/sockets.hpp"
#include "runtime/net/tcp_session.hpp"

namespace waggle::net {

namespace {

/// More addresses of one name are not used: with some of its peers the others are found.
constexpr std::size_t addresses_of_name_max = 16;
constexpr auto probe_timeout = std::chrono::seconds{4};

class tcp_transport final : public transport, public std::enable_shared_from_this<tcp_transport> {
public:
  explicit tcp_transport(tcp_transport_config config)
    : config_(std::move(config)), events_(watched(config_.events)),
      pool_(buffer_pool::make(4 * config_.window_bytes)),
      nonces_(config_.seed != 0 ? config_.seed : entropy_seed()), claims_{nonces_.next(),
                                                                          config_.agreement,
                                                                          config_.looks},
      run_(config_.key ? std::make_shared<const run_secret>(*config_.key)
                       : std::make_shared<const run_secret>(config_.run_id)),
      tls_(std::make_shared<const tls_context>(
        *config_.self, config_.pages ? config_.pages : page_certificate::make(), config_.encrypts)),
      front_({.handler = config_.http,
              .events = events_,
              .timeout = config_.http_timeout,
              .tls = tls_,
              .links_encrypt = config_.encrypts,
              .loopback_is_far = config_.loopback_is_far,
              .key = config_.key ? run_ : nullptr,
              .open_pages = config_.open_pages,
              .own_hosts = config_.http_hosts},
             config_.http_connections,
             host_budgets{config_.handshake_work, config_.connections_max}),
      names_(io_, config_.lookup), handshaking_(config_.handshakes),
      hosts_(config_.handshake_work, config_.connections_max) {
    WAGGLE_CHECK(config_.window_bytes / 4 * 3 >= frame_body_bytes_max, "window too small");
    if (config_.shared_memory)
      host_ = local_host::make(io_, config_.arena ? config_.arena : shared_arena::make());
    thread_ = std::thread{[this] { io_.run(); }};
  }

  ~tcp_transport() override { stop(); }

  result<std::vector<endpoint>> listen(const std::vector<endpoint>& where,
                                       on_link accept) override {
    if (!accept)
      return front_.listen(where, nullptr);
    accept_ = std::move(accept);
    return front_.listen(where,
                         [weak = weak_from_this(), context = context_](upgraded_socket peer) {
                           asio::post(*context, [weak, peer = std::move(peer)]() mutable {
                             if (auto self = weak.lock(); self && !self->stopping_)
                               self->receive(std::move(peer));
                           });
                         });
  }

  void resolve(const endpoint& given, milliseconds timeout, on_resolved done) override {
    asio::post(io_, [me = shared_from_this(), given, timeout, done = std::move(done)]() mutable {
      me->look_up(given, timeout, std::move(done));
    });
  }

  void dial(const dial_target& to, milliseconds timeout, on_dialled done) override {
    asio::post(io_, [me = shared_from_this(), to, timeout, done = std::move(done)] {
      auto attempt = std::make_shared<dialler>(me, to, timeout, done);
      std::erase_if(me->dialling_, [](const auto& weak) { return weak.expired(); });
      me->dialling_.push_back(attempt);
      attempt->run();
    });
  }

  void announce(peer_record self) override {
    asio::post(io_, [me = shared_from_this(), self = std::move(self)]() mutable {
      me->config_.record = std::move(self);
    });
  }

  void stop() override {
    if (!thread_.joinable() || std::this_thread::get_id() == thread_.get_id())
      return;
    front_.stop();
    asio::post(io_, [this] {
      stopping_ = true;
      probe_timer_.cancel();
      for (const auto& [host, end_probe] : probes_)
        end_probe();
      for (const auto& weak : sessions_)
        if (auto session = weak.lock())
          session->abandon({ec::shutting_down, "this peer is stopping"});
      sessions_.clear();
      for (const auto& weak : dialling_)
        if (auto attempt = weak.lock())
          attempt->expire(ec::shutting_down);
      dialling_.clear();
      names_.stop();
      if (host_)
        host_->stop();
      guard_.reset();
      io_.stop(); // does not wait for HTTP clients
    });
    thread_.join();
    // Runs the handlers cancelled above on this thread, so that nothing is called later.
    io_.restart();
    io_.poll();
    accept_ = nullptr;
  }

private:
  /// Answers within `timeout`; the lookup itself may take longer.
  void look_up(const endpoint& given, milliseconds timeout, on_resolved done) {
    if (stopping_)
      return;
    if (numeric(given.host))
      return done(std::vector{given});
    names_.resolve(given.host, timeout,
                   [this, given, done = std::move(done)](const result<host_addresses>& found) {
                     if (!found.ok())
                       return done(found.error());
                     std::vector<endpoint> addresses;
                     for (const auto& address : in_dialling_order(*found, addresses_of_name_max))
                       addresses.push_back({address.to_string(), given.port});
                     events_->resolved(given, addresses);
                     done(std::move(addresses));
                   });
  }

  /// One attempt to reach a peer: connect, upgrade, handshake; one deadline for all.
  class dialler : public std::enable_shared_from_this<dialler> {
  public:
    dialler(std::shared_ptr<tcp_transport> owner, dial_target to, milliseconds timeout,
            on_dialled done)
      : owner_(std::move(owner)), to_(std::move(to)), timeout_(timeout), done_(std::move(done)),
        began_(owner_->wall_time()), socket_(owner_->io_), deadline_(owner_->io_),
        again_(owner_->io_) {}

    void run() {
      if (owner_->stopping_)
        return finish(failure{ec::shutting_down, {}});
      deadline_.expires_after(timeout_);
      deadline_.async_wait([me = shared_from_this()](const error_code& error) {
        if (!error)
          me->expire(ec::timeout);
      });
      connect();
    }

    void expire(ec reason) {
      error_code ignored;
      again_.cancel();
      socket_.close(ignored);
      if (stream_) // it has the socket
        stream_->socket().close(ignored);
      auto session = session_;
      finish(failure{reason, "no link within " + std::to_string(timeout_.count()) + " ms"});
      if (session)
        session->abandon({reason, {}});
    }

  private:
    void connect() {
      auto address = numeric(to_.where.host);
      if (!address)
        return finish(failure{ec::unreachable, "a name, which has to be resolved first"});
      tcp::endpoint there{*address, to_.where.port};
      error_code failed;
      open_socket(socket_, there.protocol(), failed);
      // So that a later socket may be bound to the same port (dial_target::from).
      if (!failed)
        socket_.set_option(tcp::socket::reuse_address{true}, failed);
      if (auto own = numeric(to_.from.value_or(endpoint{}).host); own && !failed)
        socket_.bind({*own, to_.from->port}, failed);
      if (failed)
        return finish(failure{ec::unreachable, failed.message()});
      if (owner_->narrow_.contains(unmapped(*address).to_string(),
                                   std::chrono::steady_clock::now()))
        socket_tuning::use_small_segments(socket_.native_handle());
      socket_.async_connect(there, [me = shared_from_this()](const error_code& error) {
        if (error && me->to_.from && error != asio::error::operation_aborted)
          return me->connect_again();
        if (error)
          return me->finish(failure{ec::unreachable, text_of(error, me->to_.where.host)});
        if (me->to_.answers)
          return me->answer();
        if (me->owner_->config_.encrypts && me->owner_->is_far(me->socket_))
          me->encrypt();
        else
          me->upgrade();
      });
    }

    /// The other end has not dialled yet, so its router refused us.
    void connect_again() {
      constexpr auto pause = std::chrono::milliseconds{200};
      error_code ignored;
      socket_.close(ignored);
      again_.expires_after(pause);
      again_.async_wait([me = shared_from_this()](const error_code& error) {
        if (!error && me->done_)
          me->connect();
      });
    }

    void answer() {
      error_code error;
      bool v6 = socket_.local_endpoint(error).protocol() == tcp::v6();
      if (!error)
        owner_->front_.adopt(unique_fd{socket_.release(error)}, v6);
      if (error)
        return finish(failure{ec::unreachable, error.message()});
      finish(std::shared_ptr<link>{});
    }

    /// In place of the upgrade. Whatever fails ends the attempt: nothing falls back.
    void encrypt() {
      if (!done_)
        return;
      const auto& name = to_.given.value_or(to_.where).host;
      stream_ = std::make_shared<byte_stream>(
        std::move(socket_),
        std::make_unique<tls_channel>(*owner_->tls_, true, numeric(name) ? std::string{} : name));
      stream_->begin([me = shared_from_this(), stream = stream_](const error_code& error) {
        if (error)
          return me->finish(stream->why(error));
        if (!stream->tls()->peer_key())
          return me->finish(failure{ec::bad_signature, std::string{relayed}});
        me->shake_hands(stream, {});
      });
    }

    void upgrade() {
      if (!done_)
        return;
      stream_ = std::make_shared<byte_stream>(std::move(socket_));
      request_upgrade(stream_, to_.given.value_or(to_.where).host,
                      [me = shared_from_this(), stream = stream_](failure why, std::string early) {
                        if (why.code != ec::none)
                          return me->finish(std::move(why));
                        me->shake_hands(stream, std::move(early));
                      });
    }

    void shake_hands(const std::shared_ptr<byte_stream>& stream, std::string early) {
      if (!done_)
        return;
      session_ = owner_->make_session(stream, std::move(early));
      session_->run(owner_->handshake_setup(true, to_.expected, began_, stream->tls()),
                    owner_->config_.handshake_timeout,
                    [me = shared_from_this()](result<std::shared_ptr<tcp_session>> outcome) {
                      if (!outcome.ok())
                        return me->finish(outcome.error());
                      me->owner_->report_opened(**outcome);
                      me->finish(std::shared_ptr<link>{*outcome});
                    });
    }

    void finish(result<std::shared_ptr<link>> outcome) {
      auto done = std::exchange(done_, nullptr);
      if (!done) {
        if (outcome.ok() && *outcome)
          (*outcome)->close({ec::timeout, {}});
        return;
      }
      deadline_.cancel();
      session_.reset();
      stream_.reset();
      if (!outcome.ok()) {
        owner_->events_->dial_failed(outcome.error().code);
        owner_->report_refused(to_.where, true, outcome.error());
        auto why = outcome.error();
        why.detail = to_string(to_.where) + ": " + why.detail;
        return done(std::move(why));
      }
      done(std::move(outcome));
    }

    std::shared_ptr<tcp_transport> owner_;
    dial_target to_;
    milliseconds timeout_;
    on_dialled done_;
    swarm_time began_;
    tcp::socket socket_;
    std::shared_ptr<byte_stream> stream_; // once it is connected
    asio::steady_timer deadline_;
    asio::steady_timer again_; // of a dial that meets another
    std::shared_ptr<tcp_session> session_;
  };

  std::shared_ptr<const net_events> watched(net_events events) {
    events.ended_stuck = [this](const std::string& host) {
      if (narrow_.ended_stuck(host, std::chrono::steady_clock::now()))
        probe_paths();
    };
    return std::make_shared<const net_events>(std::move(events));
  }

  [[nodiscard]] swarm_time wall_time() const {
    return config_.clock ? config_.clock->now() : swarm_time{};
  }

  /// `began`: when the connection was dialled or accepted.
  handshake::setup handshake_setup(bool dialled, const peer_id& expected, swarm_time began,
                                   const tls_channel* channel) {
    handshake::setup with{dialled,
                          run_,
                          config_.self,
                          config_.record,
                          config_.verifier,
                          {},
                          expected,
                          host_ ? host_->token() : std::string{},
                          claims_,
                          config_.clock,
                          began,
                          config_.clocks};
    with.members = config_.members;
    nonces_.fill(with.nonce.bytes);
    if (channel != nullptr)
      with.channel = channel->binding();
    if (channel != nullptr && dialled)
      with.certified = channel->peer_key().value();
    return with;
  }

  /// Actors may keep a link for some time after its end. It has no socket any more, and takes
  /// nobody's place.
  void forget_ended() {
    std::erase_if(sessions_, [](const auto& weak) {
      auto session = weak.lock();
      return !session || session->ended();
    });
  }

  [[nodiscard]] bool is_far(const tcp::socket& socket) const {
    return config_.loopback_is_far || leaves_machine(socket);
  }

  std::shared_ptr<tcp_session> make_session(std::shared_ptr<byte_stream> stream,
                                            std::string early) {
    std::optional<socket_tuning> tuning; // loopback has no queue to keep short and no loss
    if (is_far(stream->socket()))
      tuning = socket_tuning{config_.congestion};
    auto session =
      std::make_shared<tcp_session>(context_, std::move(stream), std::move(early),
                                    config_.window_bytes, std::move(tuning), events_, pool_, host_);
    forget_ended();
    sessions_.push_back(session);
    return session;
  }

  /// The hosts to which large messages may be lost, one after another and again.
  void probe_paths() {
    if (stopping_)
      return;
    for (const auto& [host, where] : narrow_.due(std::chrono::steady_clock::now())) {
      std::erase_if(probes_, [&host = host](const auto& each) { return each.first == host; });
      auto ended = [this, host = host](narrow_paths::width what) {
        narrow_.probed(host, what);
        tell_of_narrow_path();
      };
      probes_.emplace_back(host, probe_path(io_, where, probe_timeout, ended));
    }
    tell_of_narrow_path();
    if (!narrow_.any())
      return;
    probe_timer_.expires_after(std::chrono::seconds{1});
    probe_timer_.async_wait([this](const error_code& error) {
      if (!error)
        probe_paths();
    });
  }

  void tell_of_narrow_path() {
    if (auto found = narrow_.found(); found != std::exchange(told_narrow_, found))
      events_->narrow_path(found);
  }

  /// Where the peer listens, at the host at which it is seen.
  static std::optional<endpoint> listens_at(const link& made) {
    for (const auto& where : made.remote().addresses)
      if (where.host == made.host())
        return where;
    return std::nullopt;
  }

  void report_opened(const link& made) {
    narrow_.opened(made.host(), listens_at(made));
    events_->opened(made.outbound());
    events_->linked(made.claims());
  }

  void report_refused(const endpoint& where, bool outbound, const failure& why) {
    if (started_wrongly(why) || why.code == ec::not_a_member)
      events_->disagreed(where, outbound, why);
  }

  void receive(upgraded_socket peer) {
    tcp::socket socket{io_};
    error_code gone;
    socket.assign(peer.v6 ? tcp::v6() : tcp::v4(), peer.socket.get(), gone);
    if (gone)
      return;
    (void)peer.socket.release();
    // The peer may have stamped its first message at any time since then.
    auto began = wall_time()
                 - std::chrono::duration_cast<swarm_time::duration>(std::chrono::steady_clock::now()
                                                                    - peer.accepted);
    auto remote = socket.remote_endpoint(gone).address();
    auto host = gone ? std::string{} : host_key(remote, socket.local_endpoint(gone).address());
    forget_ended();
    auto now = std::chrono::steady_clock::now();
    if (gone || sessions_.size() >= config_.connections_max
        || !hosts_.take(host, cost::handshake, now)) {
      events_->refused(ec::rate_limited);
      return; // closes the socket
    }
    auto stream = std::make_shared<byte_stream>(std::move(socket), std::move(peer.tls));
    auto session = make_session(stream, std::move(peer.early));
    auto id = ++last_handshake_;
    handshaking_.add(id, host, [weak = std::weak_ptr{session}] {
      if (auto oldest = weak.lock())
        oldest->abandon({ec::rate_limited, "too many handshakes at once"});
    });
    session->run(handshake_setup(false, {}, began, stream->tls()), config_.handshake_timeout,
                 [weak = weak_from_this(), from = unmapped(remote).to_string(), id,
                  dialler = std::weak_ptr{session}](result<std::shared_ptr<tcp_session>> outcome) {
                   auto me = weak.lock();
                   if (!me)
                     return;
                   me->handshaking_.remove(id);
                   if (auto who = dialler.lock(); !outcome.ok() && who && who->claims().looks)
                     return;
                   if (!outcome.ok()) {
                     me->events_->refused(outcome.error().code);
                     me->report_refused({from, 0}, false, outcome.error());
                     return;
                   }
                   me->report_opened(**outcome);
                   if (me->accept_)
                     me->accept_(*outcome);
                 });
  }

  tcp_transport_config config_;
  std::shared_ptr<const net_events> events_;
  std::shared_ptr<buffer_pool> pool_;
  random_source nonces_;
  peer_claims claims_; // ours
  std::shared_ptr<const run_secret> run_;
  std::shared_ptr<asio::io_context> context_ = std::make_shared<asio::io_context>(1);
  asio::io_context& io_ = *context_;
  asio::executor_work_guard<asio::io_context::executor_type> guard_{io_.get_executor()};
  std::shared_ptr<local_host> host_; // null: no shared memory
  std::shared_ptr<const tls_context> tls_;
  http_front front_;
  name_resolver names_;
  on_link accept_;
  connection_slots handshaking_; // of peers that dialled us
  connection_slots::number last_handshake_ = 0;
  host_budgets hosts_; // of handshakes
  std::vector<std::weak_ptr<tcp_session>> sessions_;
  std::vector<std::weak_ptr<dialler>> dialling_;
  narrow_paths narrow_;
  std::optional<std::string> told_narrow_;
  asio::steady_timer probe_timer_{io_};
  std::vector<std::pair<std::string, std::function<void()>>> probes_; // hosts, and their ends
  bool stopping_ = false;
  std::thread thread_; // last: runs while all of the above exist
};

} // namespace

std::shared_ptr<transport> make_tcp_transport(tcp_transport_config config) {
  return std::make_shared<tcp_transport>(std::move(config));
}

} // namespace waggle::net
