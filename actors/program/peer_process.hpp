#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/node/node.hpp"
#include "actors/service/machine.hpp"
#include "runtime/cli/join_watch.hpp"
#include "runtime/cli/peer_address.hpp"
#include "runtime/config/run_options.hpp"
#include "runtime/core/folder_lock.hpp"
#include "runtime/core/result.hpp"
#include "runtime/training/notice_period.hpp"

namespace waggle {

/// One peer as the whole of a process: identity, data folder, log, sockets, actor system, signals.
class peer_process {
public:
  /// Does everything that can fail before the peer runs; the failure is a sentence for the
  /// operator. `around`: what the peer shares with the process, if it is not all of it.
  static result<std::unique_ptr<peer_process>> prepare(const run_options& options,
                                                       environment around = {});
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  /// The configuration that all commands share. The caller adds averaging and training.
  [[nodiscard]] node_config base_config() const;
  [[nodiscard]] const identity& self() const { return *self_; }
  [[nodiscard]] const std::filesystem::path& data_dir() const { return data_dir_; }
  [[nodiscard]] caf::actor_system& system() { return *around_.system; }
  /// Whether no other peer uses the actor system.
  [[nodiscard]] bool owns_system() const { return own_system_ != nullptr; }
  [[nodiscard]] spdlog::logger& log() { return *log_; }
  /// For a peer that trains: see training_config::leave.
  [[nodiscard]] const std::shared_ptr<leave_notice>& notice() const { return notice_; }

  /// Takes other options for the peer that is started next; its identity, data folder and log stay.
  void set_options(const run_options& options) { options_ = options; }

  /// Binds and starts the peer.
  [[nodiscard]] result<started_node> start(const node_config& config);
  /// Prints the start-up block. Its last line is a command with which other peers can join; it is
  /// omitted if the peer is not `joinable`.
  void print_start(const node_config& config, const started_node& peer, bool joinable = true) const;
  /// Prints lines whatever the level of the log: as they are, or as a line of a log in JSON.
  void print(const std::string& lines) const;
  /// Logs a sentence, as info.
  void note(const std::string& sentence) const;
  /// Reports that the command cannot go on because of what the operator has set: as bad_usage, or
  /// as an error of a log in JSON, which has begun. Returns exit_bad_usage.
  [[nodiscard]] int refuse(const std::string& sentence) const;

  /// How long the peer that was started may take to stop (`shut_down`).
  [[nodiscard]] milliseconds shutdown_limit() const { return shutdown_limit_; }

  /// The reason, if all initial peers refused the options of the peer that was started.
  [[nodiscard]] std::optional<failure> refused_by_all() const {
    return watch_ ? watch_->refused_by_all() : std::nullopt;
  }

  /// Waits for a signal, --duration, `finished` to return true, the peer to end by itself, or all
  /// its initial peers to refuse its options. Then ends the peer in order. Returns the process's
  /// exit code. With --leave-within, the first TERM or USR1 is a notice instead.
  int run_until_done(const started_node& peer, const std::function<bool()>& finished,
                     training_status* last = nullptr);

private:
  explicit peer_process(const run_options& options) : options_(options) {}
  void log_state(const status_board& board) const;
  void log_late(wait_log& waits, const std::string& why_not_ready) const;
  void switch_debug(const char* signal) const;
  /// How others join, in one line.
  [[nodiscard]] std::string line_to_join(const started_node& peer, const run_agreement* agreement,
                                         const std::vector<endpoint>& addresses) const;
  /// For `waggle invite`.
  void write_invitation(const started_node& peer, const run_agreement* agreement,
                        const std::vector<endpoint>& addresses) const;
  /// And has `waggle invite` print the newest list.
  void log_new_addresses(const started_node& peer);
  void log_join_line(const started_node& peer, const run_agreement& agreement);

  run_options options_;
  std::filesystem::path data_dir_;
  std::unique_ptr<folder_lock> lock_;
  std::shared_ptr<const identity> self_;
  std::shared_ptr<run_members> members_; // null: there is no list
  list_rank invited_with_;               // of the list in the file of `waggle invite`
  std::shared_ptr<spdlog::logger> log_;
  environment around_;
  own_system_config config_;
  std::unique_ptr<caf::actor_system> own_system_; // null: the caller's is used
  std::shared_ptr<join_watch> watch_;
  std::shared_ptr<leave_notice> notice_ = std::make_shared<leave_notice>();
  std::unique_ptr<peer_address> address_;          // null: not started, or it could not be written
  milliseconds shutdown_limit_{0};                 // of the peer that was started
  std::shared_ptr<const run_agreement> agreement_; // the peer's own; null: none
  bool knows_run_ = false;                         // it has none, and has logged the run's
  std::vector<endpoint> joined_at_;                // the addresses that were in its join line
};

} // namespace waggle
