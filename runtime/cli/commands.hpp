#pragma once

// The commands that run no actors in their own process.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/cli/command_line.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// How large --model is, and how fast.
struct model_facts {
  std::uint64_t trained = 0; // parameters
  std::uint64_t frozen = 0;  // parameters
  double step_seconds = 0;   // of a pass with --micro-batch on this machine; 0: not measured
};
/// guess: without reading a TorchScript file, by its size. measure: makes two passes, and where
/// these are short, more for about a second.
enum class model_look { guess, count, measure };

/// What `waggle train` reports about options on this machine. False: there is no LibTorch to ask,
/// and `facts` starts waggle-trainer in this process's place.
struct training_check {
  std::function<status(const run_options&)> usable;
  /// Why no checkpoint of this data folder can be used; empty: one can, or there is none.
  std::function<std::string(const run_options&, const std::filesystem::path&)> unused_checkpoint;
  /// Fails as `usable` does.
  std::function<result<model_facts>(const run_options&, model_look)> facts;

  explicit operator bool() const { return usable != nullptr; }
};
command config_command(training_check check);
command health_command();
command id_command();
command invite_command();
command members_command();
command plan_command(training_check check);
command replay_command();
command status_command();
command swarm_command();

/// The address that the command line of `status` or `health` names, or that of the peer of its data
/// folder.
result<endpoint> asked_peer(const run_options& options);
/// Whether that command line says https://HOST:PORT.
bool asks_encrypted(const run_options& options);
/// The value of --fingerprint, as net::http_get takes it; empty: it is not given.
std::string asked_fingerprint(const run_options& options);
/// Writes why there is none to standard error, and returns the exit code: 2 for a wrong address.
int report_no_peer(const failure& why);

/// What a peer says of itself, and of all peers that it knows.
struct peer_documents {
  nlohmann::ordered_json status;
  nlohmann::ordered_json peers; // an object; its "peers" are an array
};
/// Asks the peer there. Nothing: standard error has the reason, and `code` is the exit code.
std::optional<peer_documents> documents_of(const endpoint& where, const run_options& options,
                                           int& code);

} // namespace waggle
