#pragma once

#include <filesystem>
#include <memory>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// The file `address` in the data folder of a running peer: where `waggle status` and `waggle
/// health` find it. It also names the process, so that the file of a peer that was killed, or that
/// runs in another container with the same folder, is not mistaken for that of a running one.
class peer_address {
public:
  /// Writes the file; the destructor removes it. `bound`: where the peer listens; for a wildcard
  /// the loopback address of its family is written. Fails with a sentence.
  static result<std::unique_ptr<peer_address>> write(const std::filesystem::path& folder,
                                                     const endpoint& bound);
  ~peer_address();
  peer_address(const peer_address&) = delete;
  peer_address& operator=(const peer_address&) = delete;

private:
  explicit peer_address(std::filesystem::path file) : file_(std::move(file)) {}
  std::filesystem::path file_;
};

/// The address of the one peer that runs on this machine (in this container) with this data folder,
/// or with one in it, as default folders are. Fails with a sentence that says what to do if there
/// is none, or more than one.
result<endpoint> address_of_running_peer(const std::filesystem::path& folder);

/// In a data folder: what `waggle invite` prints.
constexpr const char* invitation_file = "invite.toml";

/// At most so many peers of a run have a default folder (peer_process).
constexpr int default_folders_max = 64;
/// The data folder of the `number`th peer of a run, counted from 1, if the operator names none: no
/// run goes on from the checkpoints of another one. `home`: run_options::data_dir.
std::filesystem::path default_folder(const std::filesystem::path& home, const std::string& run_id,
                                     int number);

} // namespace waggle
