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
/// or, unless `only_this`, with one of those that peers take if it is taken ("FOLDER-2", …). Fails
/// with a sentence that says what to do if there is none, or more than one.
result<endpoint> address_of_running_peer(const std::filesystem::path& folder, bool only_this);

/// More peers than this do not share a default folder (peer_process).
constexpr int default_folders_max = 64;
/// The folder that the `number`th peer takes, counted from 1.
std::filesystem::path default_folder(const std::filesystem::path& first, int number);

} // namespace waggle
