#include "actors/program/peer_process.hpp"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <sstream>

#include <malloc.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>

#include "actors/caf_error.hpp"
#include "actors/caller_thread.hpp"
#include "actors/program/node_options.hpp"
#include "runtime/cli/command_line.hpp"
#include "runtime/cli/join_line.hpp"
#include "runtime/cli/logging.hpp"
#include "runtime/cli/notice_watch.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/cli/status_text.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/private_file.hpp"
#include "runtime/core/try.hpp"
#include "runtime/net/clock_watch.hpp"
#include "runtime/net/http_hosts.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

result<std::unique_ptr<peer_process>> peer_process::prepare(const run_options& options,
                                                            environment around) {
  std::unique_ptr<peer_process> parts{new peer_process{options}};
  bool chosen = options.given.count("data-dir") > 0;
  // Several peers of a run may be started without a folder: each takes one of its own.
  for (int i = 1; !parts->lock_ && i <= (chosen ? 1 : default_folders_max); ++i) {
    parts->data_dir_ =
      chosen ? options.data_dir : default_folder(options.data_dir, options.run(), i);
    WAGGLE_TRY(lock, folder_lock::take(parts->data_dir_));
    parts->lock_ = std::move(*lock);
  }
  if (!parts->lock_)
    return failure{ec::bad_config, "another peer uses --data-dir " + parts->data_dir_.string()
                                     + ": give this one its own"};
  auto key = identity::load_or_create(options.identity.value_or(parts->data_dir_ / "identity.pem"));
  if (!key)
    return failure{ec::bad_config, key.error().detail};
  parts->self_ = *key;
  WAGGLE_TRY(members, membership_of(options));
  parts->members_ = *members;
  auto leftovers =
    remove_leftovers(*make_system_disk(), parts->data_dir_,
                     {"known_peers", "identity", "pages", "address", "invite", members_file});
  parts->log_ = logger_to(around.log, options.log_level);
  if (!parts->log_)
    parts->log_ = make_logger(options.log_level, options.log_format, short_name(parts->self_->id()),
                              options.run_id);
  for (const auto& name : leftovers)
    parts->log_->info("removed {}, which was left half written",
                      (parts->data_dir_ / name).string());
  if (auto warning = writable_by_others(parts->data_dir_))
    parts->log_->warn("{}", *warning);
  if (around.system == nullptr) {
    caller_thread here;
    parts->own_system_ = std::make_unique<caf::actor_system>(parts->config_);
    around.system = parts->own_system_.get();
  }
  parts->around_ = std::move(around);
  return parts;
}

node_config peer_process::base_config() const {
  auto config = node_config_from(options_, data_dir_);
  config.members = members_;
  return config;
}

result<started_node> peer_process::start(const node_config& config) {
  watch_ = std::make_shared<join_watch>(config.initial_peers);
  agreement_ = config.agreement;
  shutdown_limit_ = waggle::shutdown_limit(config);
  auto pages = page_certificate::load_or_create(data_dir_ / page_certificate_file);
  if (!pages)
    return failure{ec::bad_config, pages.error().detail};
  net::tcp_transport_config tcp;
  tcp.pages = *pages;
  tcp.key = options_.key;
  tcp.members = config.members;
  tcp.encrypts = options_.encrypts;
  tcp.open_pages = options_.given.contains("pages") && options_.pages == "all";
  tcp.shared_memory = options_.shared_memory;
  tcp.congestion = options_.congestion;
  for (const auto* own : {&options_.listen, &options_.announce})
    for (const auto& where : *own)
      tcp.http_hosts.insert(net::host_name(where.host));
  auto watch_events = [watch = watch_](net::net_events& events) {
    events.linked = [watch](const net::peer_claims& claims) { watch->linked(claims.agreement); };
    events.disagreed = [watch, tell = std::move(events.disagreed)](
                         const endpoint& where, bool outbound, const failure& why) {
      if (why.code != ec::not_a_member) // it may become one
        watch->disagreed(where, why);
      tell(where, outbound, why);
    };
    events.resolved = [watch, tell = std::move(events.resolved)](
                        const endpoint& given, const std::vector<endpoint>& addresses) {
      watch->resolved(given, addresses);
      tell(given, addresses);
    };
  };
  auto dependencies = machine_dependencies(around_, self_, log_, config.run_id, data_dir_,
                                           std::move(tcp), watch_events);
  if (options_.maps_ports)
    dependencies.router = net::make_port_router();
  WAGGLE_TRY(started, start_node(*around_.system, config, dependencies));
  log_->info("the pages' certificate for https has the SHA-256 fingerprint {}",
             (*pages)->fingerprint());
  if (auto address = peer_address::write(data_dir_, started->bound))
    address_ = std::move(*address);
  else
    log_->warn("`waggle status` does not find this peer by itself: {}", address.error().detail);
  write_invitation(*started, config.agreement.get(), started->ctx.record.addresses);
  return started;
}

void peer_process::print_start(const node_config& config, const started_node& peer,
                               bool joinable) const {
  print((config.client_mode ? "accepts no peers; status and metrics on " : "listening on ")
        + to_string(peer.bound));
  print("peer " + to_string(self().id()) + " of run " + options_.run_id + ", data in "
        + data_dir().string());
  if (!config.client_mode && joinable)
    print("join with:\n" + line_to_join(peer, config.agreement.get(), peer.ctx.record.addresses));
}

std::string peer_process::line_to_join(const started_node& peer, const run_agreement* agreement,
                                       const std::vector<endpoint>& addresses) const {
  if (!is_inline_key(options_.swarm_key))
    return join_line(options_.run_id, agreement, addresses, peer.bound, options_.swarm_key,
                     options_.members);
  return "waggle " + std::string{command_of(agreement)}
         + " --config FILE, with the FILE that `waggle "
           "invite --data-dir "
         + shell_word(data_dir_.string()) + "` prints";
}

void peer_process::write_invitation(const started_node& peer, const run_agreement* agreement,
                                    const std::vector<endpoint>& addresses) const {
  auto file = data_dir_ / invitation_file;
  std::error_code none;
  std::filesystem::remove(file, none);
  if (options_.client_mode)
    return;
  auto list = members_ ? members_->list() : nullptr;
  auto text = invitation(options_.run_id, agreement, addresses, peer.bound, options_.key,
                         options_.members, list ? inline_text(*list) : std::string{});
  if (auto written = write_private(file, text); !written)
    log_->warn("`waggle invite` finds nothing: {}", written.error().detail);
}

void peer_process::print(const std::string& lines) const {
  if (options_.log_format == "json") {
    const spdlog::details::log_msg line{log_->name(), spdlog::level::info, lines};
    for (const auto& sink : log_->sinks()) { // no error, though --log-level be error
      sink->log(line);
      sink->flush();
    }
  } else {
    std::fprintf(stderr, "%s\n", lines.c_str());
    std::fflush(stderr);
  }
}

void peer_process::note(const std::string& sentence) const {
  log_->info("{}", sentence);
}

int peer_process::refuse(const std::string& sentence) const {
  if (options_.log_format != "json")
    return bad_usage(sentence);
  log_->error("{}", sentence);
  log_->flush();
  return exit_bad_usage;
}

/// Logs what `waggle status` shows, whatever the level of the log.
void peer_process::log_state(const status_board& board) const {
  auto page = [&](const char* path) {
    return parse_document(board.answer({"GET", path}).body)
      .value_or(nlohmann::ordered_json::object());
  };
  std::istringstream lines{status_text(page("/api/v1/status"), page("/api/v1/peers")["peers"])};
  auto level = std::max(log_->level(), spdlog::level::info);
  log_->log(level, "the state of this peer, which SIGQUIT asks for:");
  for (std::string line; std::getline(lines, line);)
    if (!line.empty())
      log_->log(level, "  {}", line);
}

/// Warns of a peer that is not ready for long. The first failures are logged where they happen.
void peer_process::log_late(wait_log& waits, const std::string& why_not_ready) const {
  auto what = why_not_ready.empty() ? std::string{} : "the run (" + why_not_ready + ")";
  if (auto line = waits.look(what, std::chrono::steady_clock::now()); line && line->late)
    log_wait(*log_, line);
}

void peer_process::switch_debug(const char* signal) const {
  bool on = log_->level() != spdlog::level::debug;
  auto chosen = spdlog::level::from_str(options_.log_level);
  log_->set_level(on ? spdlog::level::debug
                     : std::max(chosen, spdlog::level::info)); // of --log-level debug: info
  log_->log(log_->level(), "received {}: debug lines are {}", signal, on ? "on" : "off");
}

/// Logs the join line again after the network has changed.
void peer_process::log_new_addresses(const started_node& peer) {
  auto own = peer.ctx.own_record().addresses;
  auto before = std::exchange(joined_at_, own);
  auto list = members_ ? members_->rank() : list_rank{};
  if (std::exchange(invited_with_, list) != list && own == before)
    write_invitation(peer, agreement_.get(), own);
  if (own.empty() || before.empty() || own == before)
    return;
  log_->info("join with: {}", line_to_join(peer, agreement_.get(), own));
  write_invitation(peer, agreement_.get(), own);
}

/// Logs the join line of a run whose options a peer without an agreement has learned.
void peer_process::log_join_line(const started_node& peer, const run_agreement& agreement) {
  auto own = peer.ctx.own_record().addresses;
  if (own.empty())
    return; // other peers cannot join through a client
  write_invitation(peer, &agreement, own);
  auto line = line_to_join(peer, &agreement, own);
  if (std::exchange(knows_run_, true))
    log_->warn("peers of this run were started with different options; the others have: {}", line);
  else
    log_->info("the run's options are known; join with: {}", line);
}

int peer_process::run_until_done(const started_node& peer, const std::function<bool()>& finished,
                                 training_status* last) {
  auto ended = std::make_shared<std::atomic<bool>>(false);
  auto bad_end = std::make_shared<std::atomic<bool>>(false);
  caf::actor_cast<caf::actor>(peer.node)->attach_functor([ended, bad_end](const caf::error& why) {
    if (why && why != caf::exit_reason::user_shutdown)
      *bad_end = true;
    *ended = true;
  });
  auto began = std::chrono::steady_clock::now();
  std::string why;
  std::optional<notice_watch> page;
  if (peer.parts.trainer && !options_.notice_url.empty())
    page.emplace(
      options_.notice_url, [this] { (void)notice_->give(options_.leave_within); },
      [this](const std::string& sentence) { log_->warn("{}", sentence); });
  std::optional<failure> refused;
  wait_log waits;
  net::clock_jumps jumps;
  auto trimmed = began;
  while (!*ended) {
    // Buffers of downloads and rounds come and go in threads whose arenas glibc seldom makes
    // smaller: with 29 MB of state, 23 MB of 333 were such memory after five newcomers.
    if (auto now = std::chrono::steady_clock::now(); now - trimmed >= 1min) {
      malloc_trim(0);
      trimmed = now;
    }
    if (auto by = jumps.look(std::chrono::steady_clock::now(), system_wall_clock{}.now()))
      log_->warn("this machine's clock has moved by {:+.0f} s at once: it was set, or the machine "
                 "slept. This peer goes on with the time as it was, until peers' clocks agree "
                 "with this one; set it right before the next start",
                 seconds_of(*by));
    if (auto signal = wait_for_signal(100ms)) {
      auto asked = request_of(*signal);
      bool notices = peer.parts.trainer && options_.leave_within > 0ms && !notice_->within()
                     && (*signal == SIGTERM || *signal == SIGUSR1);
      if (notices) {
        log_->info("received {}: a notice, and a second one ends this peer at once",
                   name_of_signal(*signal));
        (void)notice_->give(options_.leave_within); // the option was checked
      } else if (asked == signal_request::leave) {
        why = std::string{"received "} + name_of_signal(*signal);
        break;
      } else if (asked == signal_request::show_state) {
        log_state(*peer.board);
      } else {
        switch_debug(name_of_signal(*signal));
      }
    }
    if (!peer.parts.trainer) // which says itself what it waits for
      log_late(waits, peer.board->why_not_ready());
    refused = watch_->refused_by_all();
    if (refused) {
      why = "all its initial peers refused it";
      break;
    }
    log_new_addresses(peer);
    if (auto news = watch_->take_news(); news && !agreement_)
      log_join_line(peer, *news);
    if (finished && finished()) {
      why = notice_->within() ? "its machine will be taken away" : "its work is done";
      break;
    }
    if (options_.duration > 0ms && std::chrono::steady_clock::now() - began >= options_.duration) {
      why = "--duration passed";
      break;
    }
  }
  if (!*ended) {
    caller_actor self{*around_.system};
    self->request(peer.node, shutdown_limit_, shut_down{why})
      .receive(
        [last](const training_status& status) { // all actors have ended
          if (last != nullptr)
            *last = status;
        },
        [&](const caf::error& error) {
          log_->error("this peer did not stop in time: {}", to_string(from_caf(error)));
          *bad_end = true;
        });
  }
  if (refused)
    return refuse(
      "refused by all --initial-peers: " + refused->detail
      + (refused->code == ec::agreement_mismatch ? " (the join line prints them)" : ""));
  return *bad_end ? exit_failed : exit_clean;
}

} // namespace waggle
