#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/node.hpp"
#include "runtime/config/run_options.hpp"
#include "runtime/core/result.hpp"
#include "runtime/net/shared_arena.hpp"

namespace waggle {

/// One peer as the whole of a process: identity, data folder, log, sockets, actor system, signals.
class peer_process {
public:
  /// Makes everything that can fail before anything runs; the failure is a sentence for the
  /// operator.
  static result<std::unique_ptr<peer_process>> prepare(const run_options& options);
  ~peer_process();
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  /// A configuration with what all commands share. The caller adds averaging and training.
  [[nodiscard]] node_config base_config() const;
  [[nodiscard]] const identity& self() const;
  [[nodiscard]] const std::filesystem::path& data_dir() const;
  [[nodiscard]] caf::actor_system& system();
  [[nodiscard]] spdlog::logger& log();

  /// Every round of the peer that is started next goes through `port_decorator`.
  void decorate_rounds(round_port_decorator port_decorator);

  /// Binds, starts the peer and prints the start-up block, whose last line others can join with
  /// verbatim; none if the peer is not `joinable`.
  [[nodiscard]] result<started_node> start(const node_config& config, bool joinable = true);

  /// Why, if all initial peers refused the options of the peer that was started.
  [[nodiscard]] std::optional<failure> refused_by_all() const;

  /// Returns when a signal came, --duration passed, `finished` says so, the peer ended by itself,
  /// or all its initial peers refused its options. Then ends the peer in order. Returns the
  /// process's exit code.
  int run_until_done(const started_node& peer, const std::function<bool()>& finished);

private:
  struct impl;
  explicit peer_process(std::unique_ptr<impl> parts);
  std::unique_ptr<impl> impl_;
};

/// The part of a node's configuration that averages, from the options. `schema`: the agreement's
/// hash, or whatever else groups of equal options should not mix in.
node_config::averaging_parts averaging_from(const run_options& options, const std::string& prefix,
                                            const std::string& kind, const digest& schema);

/// The part of a node's configuration that reduces for clients.
node_config::helping_parts helping_from(const run_options& options);

/// Where a peer's vectors lie: in `arena`, unless that is null.
std::shared_ptr<std::pmr::memory_resource>
vector_memory(const std::shared_ptr<net::shared_arena>& arena);

/// SIGINT and SIGTERM are held back in all threads, to be taken by wait_for_signal. Call it first
/// in main, before there is a second thread.
void hold_signals();

/// Waits for a held signal. False: none came in time.
bool wait_for_signal(milliseconds timeout);

} // namespace waggle
