#pragma once

// No torch type in here. The optimizer that takes part in a swarm is in trainer/optimizer.hpp.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace waggle {

/// Who says how long the steps of a loop's optimizer are.
enum class rate_owner : std::uint8_t {
  /// Its own options, which the loop may change, e.g. by a scheduler of torch::optim.
  optimizer = 0,
  /// The run: `swarm_options::more` has "lr", "schedule" and "warmup-epochs" as `waggle train` has
  /// them. The rate is written into the optimizer's options before each update.
  run
};

/// A loop as a peer of a run. What the peers of a run must have alike is compared when two meet,
/// also with those of `waggle train`; whoever differs is refused with the name of what does and
/// both values.
struct swarm_options {
  std::string run = "waggle"; // its name
  /// "HOST:PORT", of any peers of the run. None: this peer begins the run.
  std::vector<std::string> initial_peers{};
  /// Where others reach this peer. Port 0: a free one, which the log names.
  std::string listen = "0.0.0.0:0";
  /// How others reach it, if not at the address it binds.
  std::string announce{};
  /// For the identity, checkpoints and known addresses; one process at a time. Empty: .waggle, or
  /// .waggle-2, … where that is taken.
  std::filesystem::path data_dir{};
  std::string log_level = "info"; // debug, info, warn or error

  // -- all peers alike
  std::uint64_t target_batch_size = 256; // samples of the whole swarm per update
  std::uint64_t max_epochs = 0;          // updates; 0: until all leave
  /// What computes. "mlp" and "char-gpt": the same function and tensors as the model that `waggle
  /// train` has under that name, with "layers", "width", "heads" and "context" in `more`. Any other
  /// text: a model of your own. Empty: told from the names and shapes of its parameters.
  std::string model{};
  /// What it learns from: "synthetic" as `waggle train` has it, data_identity() of its files, or
  /// any other text.
  std::string data = "own";
  rate_owner learning_rate = rate_owner::optimizer;
  /// Where the optimizer owns the rate: what moves it. The rate itself is compared as it is at the
  /// beginning.
  std::string schedule = "constant";

  // -- this peer alone
  /// How long to look for the run before this peer begins it, where there are addresses to look at;
  /// then only if it may start alone, or holds a checkpoint.
  std::chrono::milliseconds join_timeout{15'000};
  bool start_alone = false;
  /// Takes up the newest checkpoint in data_dir, and writes them.
  bool resume = true;

  /// Any other option of `waggle train` by its name: {"codec", "float16"}.
  std::map<std::string, std::string> more{};
};

/// What a peer knows of its run.
struct swarm_status {
  std::uint64_t epoch = 0;           // updates of the run that this peer's parameters have
  bool finished = false;             // it is the last one
  std::uint32_t group_size = 0;      // peers that average with this one, itself included
  std::uint64_t samples_offered = 0; // to `optimizer::step`
  std::uint64_t samples_used = 0;    // of these, in an update
  std::uint64_t samples_dropped = 0; // of these, in none
  std::uint64_t state_downloads = 0; // from other peers
  std::uint64_t rounds = 0;          // whose mean this peer applied
  std::string waiting_for;           // empty: for nothing
};

class swarm_session;

/// This process as a peer of a run. Nothing is listened to and nobody is dialled before a
/// waggle::optimizer is made with it: peers compare optimizers, too. A handle: copies are the same
/// peer. Used from one thread.
class swarm {
public:
  explicit swarm(std::shared_ptr<swarm_session> session) : session_(std::move(session)) {}

  /// Updates of the run so far, as this peer knows them.
  [[nodiscard]] std::uint64_t epoch() const { return status().epoch; }
  /// The run's last update is applied: there is nothing left to compute.
  [[nodiscard]] bool finished() const { return status().finished; }
  /// Asks this process's trainer, never the network: some ten microseconds. After the optimizer's
  /// end: the last one.
  [[nodiscard]] swarm_status status() const;

  /// For waggle::optimizer.
  [[nodiscard]] swarm_session& session() const { return *session_; }
  [[nodiscard]] const std::shared_ptr<swarm_session>& shared_session() const { return session_; }

private:
  std::shared_ptr<swarm_session> session_;
};

/// Checks the options, takes the data folder and reads or makes the peer's identity. Fails with a
/// sentence for the operator. No signal handlers, no globals, nothing ends the process.
result<swarm> join(const swarm_options& options);

} // namespace waggle
