#include "actors/program/peer_process.hpp"

#include <atomic>
#include <cstdio>
#include <sstream>

#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>

#include "actors/caf_error.hpp"
#include "actors/program/node_options.hpp"
#include "runtime/cli/command_line.hpp"
#include "runtime/cli/join_line.hpp"
#include "runtime/cli/join_watch.hpp"
#include "runtime/cli/logging.hpp"
#include "runtime/cli/peer_address.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/cli/status_text.hpp"
#include "runtime/core/folder_lock.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/private_file.hpp"
#include "runtime/net/clock_watch.hpp"
#include "runtime/net/http_hosts.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

} // namespace

struct peer_process::impl {
  run_options options;
  fs::path data_dir;
  std::unique_ptr<folder_lock> lock;
  std::shared_ptr<const identity> self;
  std::shared_ptr<spdlog::logger> log;
  environment around;
  own_system_config config;
  std::unique_ptr<caf::actor_system> own_system; // null: the caller's is used
  round_port_decorator port_decorator;
  std::shared_ptr<join_watch> watch;
  std::unique_ptr<peer_address> address;          // null: not started, or it could not be written
  milliseconds shutdown_limit{0};                 // of the peer that was started
  std::shared_ptr<const run_agreement> agreement; // the peer's own; null: none
  bool knows_run = false;                         // it has none, and has logged the run's
  std::vector<endpoint> joined_at;                // the addresses that were in its join line

  /// Logs what `waggle status` shows, whatever the level of the log.
  void log_state(const status_board& board) const {
    auto page = [&](const char* path) {
      return parse_document(board.answer({"GET", path}).body)
        .value_or(nlohmann::ordered_json::object());
    };
    std::istringstream lines{status_text(page("/api/v1/status"), page("/api/v1/peers")["peers"])};
    auto level = std::max(log->level(), spdlog::level::info);
    log->log(level, "the state of this peer, which SIGQUIT asks for:");
    for (std::string line; std::getline(lines, line);)
      if (!line.empty())
        log->log(level, "  {}", line);
  }

  /// Warns of a peer that is not ready for long. The first failures are logged where they happen.
  void log_late(wait_log& waits, const std::string& why_not_ready) const {
    auto what = why_not_ready.empty() ? std::string{} : "the run (" + why_not_ready + ")";
    if (auto line = waits.look(what, std::chrono::steady_clock::now()); line && line->late)
      log_wait(*log, line);
  }

  void switch_debug(const char* signal) const {
    bool on = log->level() != spdlog::level::debug;
    auto chosen = spdlog::level::from_str(options.log_level);
    log->set_level(on ? spdlog::level::debug
                      : std::max(chosen, spdlog::level::info)); // of --log-level debug: info
    log->log(log->level(), "received {}: debug lines are {}", signal, on ? "on" : "off");
  }

  /// Logs the join line again after the network has changed.
  void log_new_addresses(const started_node& peer) {
    auto own = peer.ctx.own_record().addresses;
    auto before = std::exchange(joined_at, own);
    if (!own.empty() && !before.empty() && own != before && agreement)
      log->info("join with: {}", join_line(options.run_id, agreement.get(), own, peer.bound));
  }

  /// Logs the join line of a run whose options a peer without an agreement has learned.
  void log_join_line(const started_node& peer, const run_agreement& agreement) {
    auto own = peer.ctx.own_record().addresses;
    if (own.empty())
      return; // other peers cannot join through a client
    auto line = join_line(options.run_id, &agreement, own, peer.bound);
    if (std::exchange(knows_run, true))
      log->warn("peers of this run were started with different options; the others have: {}", line);
    else
      log->info("the run's options are known; join with: {}", line);
  }
};

peer_process::peer_process(std::unique_ptr<impl> parts) : impl_(std::move(parts)) {}
peer_process::~peer_process() = default;

result<std::unique_ptr<peer_process>> peer_process::prepare(const run_options& options,
                                                            environment around) {
  auto parts = std::make_unique<impl>();
  parts->options = options;
  bool chosen = options.given.count("data-dir") > 0;
  // Several peers may be started with the default folder: each takes one of its own.
  for (int i = 1; !parts->lock && i <= (chosen ? 1 : default_folders_max); ++i) {
    parts->data_dir = default_folder(options.data_dir, i);
    auto lock = folder_lock::take(parts->data_dir);
    if (!lock)
      return lock.error();
    parts->lock = std::move(*lock);
  }
  if (!parts->lock)
    return failure{ec::bad_config, "another peer uses --data-dir " + options.data_dir.string()
                                     + ": give this one its own"};
  auto key = identity::load_or_create(options.identity.value_or(parts->data_dir / "identity.pem"));
  if (!key)
    return failure{ec::bad_config, key.error().detail};
  parts->self = *key;
  auto leftovers =
    remove_leftovers(*make_system_disk(), parts->data_dir, {"known_peers", "identity", "address"});
  parts->log = logger_to(around.log, options.log_level);
  if (!parts->log)
    parts->log = make_logger(options.log_level, options.log_format, short_name(parts->self->id()),
                             options.run_id);
  for (const auto& name : leftovers)
    parts->log->info("removed {}, which was left half written", (parts->data_dir / name).string());
  if (auto warning = writable_by_others(parts->data_dir))
    parts->log->warn("{}", *warning);
  if (around.system == nullptr) {
    parts->own_system = std::make_unique<caf::actor_system>(parts->config);
    around.system = parts->own_system.get();
  }
  parts->around = std::move(around);
  return std::unique_ptr<peer_process>{new peer_process{std::move(parts)}};
}

node_config peer_process::base_config() const {
  return node_config_from(impl_->options, impl_->data_dir);
}

const identity& peer_process::self() const {
  return *impl_->self;
}
const fs::path& peer_process::data_dir() const {
  return impl_->data_dir;
}
caf::actor_system& peer_process::system() {
  return *impl_->around.system;
}
bool peer_process::owns_system() const {
  return impl_->own_system != nullptr;
}
spdlog::logger& peer_process::log() {
  return *impl_->log;
}

void peer_process::decorate_rounds(round_port_decorator port_decorator) {
  impl_->port_decorator = std::move(port_decorator);
}

void peer_process::set_options(const run_options& options) {
  impl_->options = options;
}

result<started_node> peer_process::start(const node_config& config) {
  auto& p = *impl_;
  p.watch = std::make_shared<join_watch>(config.initial_peers);
  p.agreement = config.agreement;
  p.shutdown_limit = waggle::shutdown_limit(config);
  tcp_settings tcp;
  tcp.shared_memory = p.options.shared_memory;
  tcp.congestion = p.options.congestion;
  for (const auto* own : {&p.options.listen, &p.options.announce})
    for (const auto& where : *own)
      tcp.http_hosts.insert(net::host_name(where.host));
  tcp.watch = [watch = p.watch](net::net_events& events) {
    events.linked = [watch](const net::peer_claims& claims) { watch->linked(claims.agreement); };
    events.disagreed = [watch, tell = std::move(events.disagreed)](
                         const endpoint& where, bool outbound, const failure& why) {
      watch->disagreed(where, why);
      tell(where, outbound, why);
    };
    events.resolved = [watch, tell = std::move(events.resolved)](
                        const endpoint& given, const std::vector<endpoint>& addresses) {
      watch->resolved(given, addresses);
      tell(given, addresses);
    };
  };
  auto dependencies =
    machine_dependencies(p.around, p.self, p.log, config.run_id, p.data_dir, std::move(tcp));
  dependencies.port_decorator = p.port_decorator;
  auto started = start_node(*p.around.system, config, dependencies);
  if (!started)
    return started;
  if (auto address = peer_address::write(p.data_dir, started->bound))
    p.address = std::move(*address);
  else
    p.log->warn("`waggle status` does not find this peer by itself: {}", address.error().detail);
  return started;
}

void peer_process::print_start(const node_config& config, const started_node& peer,
                               bool joinable) const {
  print((config.client_mode ? "accepts no peers; status and metrics on " : "listening on ")
        + to_string(peer.bound));
  print("peer " + to_string(self().id()) + " of run " + config.run_id + ", data in "
        + data_dir().string());
  if (!config.client_mode && joinable)
    print(
      "join with:\n"
      + join_line(config.run_id, config.agreement.get(), peer.ctx.record.addresses, peer.bound));
}

void peer_process::print(const std::string& lines) const {
  if (impl_->options.log_format == "json") {
    const spdlog::details::log_msg line{impl_->log->name(), spdlog::level::info, lines};
    for (const auto& sink : impl_->log->sinks()) { // no error, though --log-level be error
      sink->log(line);
      sink->flush();
    }
  } else {
    std::fprintf(stderr, "%s\n", lines.c_str());
    std::fflush(stderr);
  }
}

int peer_process::refuse(const std::string& sentence) const {
  if (impl_->options.log_format != "json")
    return bad_usage(sentence);
  impl_->log->error("{}", sentence);
  impl_->log->flush();
  return exit_bad_usage;
}

milliseconds peer_process::shutdown_limit() const {
  return impl_->shutdown_limit;
}

std::optional<failure> peer_process::refused_by_all() const {
  return impl_->watch ? impl_->watch->refused_by_all() : std::nullopt;
}

int peer_process::run_until_done(const started_node& peer, const std::function<bool()>& finished,
                                 training_status* last) {
  auto& p = *impl_;
  auto ended = std::make_shared<std::atomic<bool>>(false);
  auto bad_end = std::make_shared<std::atomic<bool>>(false);
  caf::actor_cast<caf::actor>(peer.node)->attach_functor([ended, bad_end](const caf::error& why) {
    if (why && why != caf::exit_reason::user_shutdown)
      *bad_end = true;
    *ended = true;
  });
  auto began = std::chrono::steady_clock::now();
  std::string why;
  std::optional<failure> refused;
  wait_log waits;
  net::clock_jumps jumps;
  while (!*ended) {
    if (auto by = jumps.look(std::chrono::steady_clock::now(), system_wall_clock{}.now()))
      p.log->warn("this machine's clock has moved by {:+.0f} s at once: it was set, or the machine "
                  "slept. This peer goes on with the time as it was, until peers' clocks agree "
                  "with this one; set it right before the next start",
                  seconds_of(*by));
    if (auto signal = wait_for_signal(100ms)) {
      auto asked = request_of(*signal);
      if (asked == signal_request::leave) {
        why = std::string{"received "} + name_of_signal(*signal);
        break;
      }
      if (asked == signal_request::show_state)
        p.log_state(*peer.board);
      else
        p.switch_debug(name_of_signal(*signal));
    }
    if (!peer.parts.trainer) // which says itself what it waits for
      p.log_late(waits, peer.board->why_not_ready());
    refused = p.watch->refused_by_all();
    if (refused) {
      why = "all its initial peers refused it";
      break;
    }
    p.log_new_addresses(peer);
    if (auto news = p.watch->take_news(); news && !p.agreement)
      p.log_join_line(peer, *news);
    if (finished && finished()) {
      why = "its work is done";
      break;
    }
    if (p.options.duration > 0ms
        && std::chrono::steady_clock::now() - began >= p.options.duration) {
      why = "--duration passed";
      break;
    }
  }
  if (!*ended) {
    caf::scoped_actor self{*p.around.system};
    self->request(peer.node, p.shutdown_limit, shut_down{why})
      .receive(
        [last](const training_status& status) { // all actors have ended
          if (last != nullptr)
            *last = status;
        },
        [&](const caf::error& error) {
          p.log->error("this peer did not stop in time: {}", to_string(from_caf(error)));
          *bad_end = true;
        });
  }
  if (refused)
    return refuse("refused by all --initial-peers: " + refused->detail);
  return *bad_end ? exit_failed : exit_clean;
}

} // namespace waggle
