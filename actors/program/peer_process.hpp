#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/node/node.hpp"
#include "actors/service/machine.hpp"
#include "runtime/config/run_options.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// One peer as the whole of a process: identity, data folder, log, sockets, actor system, signals.
class peer_process {
public:
  /// Does everything that can fail before the peer runs; the failure is a sentence for the
  /// operator. `around`: what the peer shares with the process, if it is not all of it.
  static result<std::unique_ptr<peer_process>> prepare(const run_options& options,
                                                       environment around = {});
  ~peer_process();
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  /// The configuration that all commands share. The caller adds averaging and training.
  [[nodiscard]] node_config base_config() const;
  [[nodiscard]] const identity& self() const;
  [[nodiscard]] const std::filesystem::path& data_dir() const;
  [[nodiscard]] caf::actor_system& system();
  /// Whether no other peer uses the actor system.
  [[nodiscard]] bool owns_system() const;
  [[nodiscard]] spdlog::logger& log();

  /// Applies `port_decorator` to every round of the peer that is started next.
  void decorate_rounds(round_port_decorator port_decorator);

  /// Takes other options for the peer that is started next; its identity, data folder and log stay.
  void set_options(const run_options& options);

  /// Binds and starts the peer.
  [[nodiscard]] result<started_node> start(const node_config& config);
  /// Prints the start-up block. Its last line is a command with which other peers can join; it is
  /// omitted if the peer is not `joinable`.
  void print_start(const node_config& config, const started_node& peer, bool joinable = true) const;
  /// Prints lines whatever the level of the log: as they are, or as a line of a log in JSON.
  void print(const std::string& lines) const;
  /// Reports that the command cannot go on because of what the operator has set: as bad_usage, or
  /// as an error of a log in JSON, which has begun. Returns exit_bad_usage.
  [[nodiscard]] int refuse(const std::string& sentence) const;

  /// How long the peer that was started may take to stop (`shut_down`).
  [[nodiscard]] milliseconds shutdown_limit() const;

  /// The reason, if all initial peers refused the options of the peer that was started.
  [[nodiscard]] std::optional<failure> refused_by_all() const;

  /// Waits for a signal, --duration, `finished` to return true, the peer to end by itself, or all
  /// its initial peers to refuse its options. Then ends the peer in order. Returns the process's
  /// exit code.
  int run_until_done(const started_node& peer, const std::function<bool()>& finished,
                     training_status* last = nullptr);

private:
  struct impl;
  explicit peer_process(std::unique_ptr<impl> parts);
  std::unique_ptr<impl> impl_;
};

} // namespace waggle
